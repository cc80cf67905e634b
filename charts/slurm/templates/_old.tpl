{{/* Values of older charts: those of charts 1.0 and 1.1 go on working, those of v0 are refused with the names of today. */}}

{{/*
Values of older charts by path, and what they are called now. They are refused where they say anything; all are in
values.schema.json, since a schema can only say that a value does not exist.
*/}}
{{- define "slurm.old.names" -}}
{{- $names := dict
  "authcred" "nothing: the daemons authenticate by themselves, remove it"
  "compute" "nodesets and partitions, by name"
  "jwt" "jwtKey.secretRef"
  "slurm.auth" "slurmKey.secretRef"
  "slurm.configFiles" "configFiles"
  "slurm.prologScripts" "prologScripts"
  "slurm.epilogScripts" "epilogScripts"
  "slurm.extraSlurmConf" "controller.extraConf or controller.extraConfMap"
  "slurm.extraSlurmdbdConf" "accounting.extraConf or accounting.extraConfMap"
  "controller.replicas" "controller.ha"
  "controller.persistence.size" "controller.persistence.resources.requests.storage"
  "controller.persistence.storageClass" "controller.persistence.storageClassName"
  "controller.persistence.annotations" "controller.persistence.existingClaim, a claim that you annotate"
  "controller.persistence.labels" "controller.persistence.existingClaim, a claim that you label"
  "accounting.replicas" "nothing: there is one slurmdbd, remove it"
  "accounting.external.password" "a Secret, named in accounting.external.secretName or accounting.storageConfig.passwordKeyRef"
-}}
{{- range $part, $daemon := dict "controller" "slurmctld" "restapi" "slurmrestd" "accounting" "slurmdbd" -}}
{{- range $field := list "image" "imagePullPolicy" "resources" -}}
{{- $_ := set $names (printf "%s.%s" $part $field) (printf "%s.%s.%s" $part $daemon $field) -}}
{{- end -}}
{{- range $field := list "affinity" "nodeSelector" "tolerations" "priorityClassName" -}}
{{- $_ := set $names (printf "%s.%s" $part $field) (printf "%s.podSpec.%s" $part $field) -}}
{{- end -}}
{{- $_ := set $names (printf "%s.servicePort" $part) (printf "%s.service.port" $part) -}}
{{- $_ := set $names (printf "%s.serviceNodePort" $part) (printf "%s.service.nodePort" $part) -}}
{{- end -}}
{{- if (.Values.login | default dict).enabled -}}
{{- range $field := list "image" "imagePullPolicy" "resources" "securityContext" -}}
{{- $_ := set $names (printf "login.%s" $field) (printf "loginsets.NAME.login.%s" $field) -}}
{{- end -}}
{{- range $field := list "affinity" "nodeSelector" "tolerations" "priorityClassName" -}}
{{- $_ := set $names (printf "login.%s" $field) (printf "loginsets.NAME.podSpec.%s" $field) -}}
{{- end -}}
{{- $names = merge $names (dict
  "login.extraVolumes" "loginsets.NAME.podSpec.volumes"
  "login.extraVolumeMounts" "loginsets.NAME.login.volumeMounts"
  "login.servicePort" "loginsets.NAME.service.port"
  "login.serviceNodePort" "loginsets.NAME.service.nodePort"
  "login.service.type" "loginsets.NAME.service.spec.type"
  "login.sshdConfig" "loginsets.NAME.extraSshdConfig, as lines"
) -}}
{{- if not (kindIs "string" .Values.login.sssdConf) }}{{ $_ := set $names "login.sssdConf" "sssd.conf, as a text" }}{{ end -}}
{{- end -}}
{{- if .Values.mariadb.enabled -}}
{{- $names = merge $names (dict
  "mariadb.auth" "accounting.storageConfig.database and .username; the chart makes the password, in the Secret of mariadb"
  "mariadb.primary" "mariadb.size, .storageClassName, .existingClaim, .config and .podSpec"
  "mariadb.initdbScripts" "nothing: mariadb.config has what slurmdbd needs, remove it"
) -}}
{{- range $field := list "affinity" "nodeSelector" "tolerations" -}}
{{- $_ := set $names (printf "mariadb.%s" $field) (printf "mariadb.podSpec.%s" $field) -}}
{{- end -}}
{{- range $field := list "architecture" "metrics" "secondary" "tde" "tls" "volumePermissions" -}}
{{- $_ := set $names (printf "mariadb.%s" $field) "nothing: this MariaDB is for evaluation; with needs like these run your own, see accounting.storageConfig" -}}
{{- end -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{/* Fails where values of older charts say something, with all of them and their names of today. */}}
{{- define "slurm.old.check" -}}
{{- $found := list -}}
{{- range $path, $name := include "slurm.old.names" . | fromJson -}}
{{- $value := $.Values -}}
{{- range splitList "." $path -}}
{{- if kindIs "map" $value }}{{ $value = index $value . }}{{ else }}{{ $value = "" }}{{ end -}}
{{- end -}}
{{- if include "slurm.old.says" $value }}{{ $found = append $found (printf "- %s: %s" $path $name) }}{{ end -}}
{{- end -}}
{{- if and (.Values.login | default dict).enabled (kindIs "slice" .Values.login.rootSshAuthorizedKeys) -}}
{{- $found = append $found "- login.rootSshAuthorizedKeys as a list: one text, a key per line" -}}
{{- end -}}
{{- with $found -}}
{{- fail (printf "these values are from an older chart; use these instead:\n%s\n" (join "\n" .)) -}}
{{- end -}}
{{- end -}}

{{/* "true" where a value says something: neither empty nor off, nor a map of such. */}}
{{- define "slurm.old.says" -}}
{{- if kindIs "map" . -}}
{{- $says := "" -}}
{{- range . }}{{ $says = include "slurm.old.says" . | default $says }}{{ end -}}
{{- $says -}}
{{- else if . -}}
true
{{- end -}}
{{- end -}}
