{{/* What stands in place of a null, so that a null of the user's is no nil pointer. */}}

{{/* Puts defaults in place of nulls; takes a list of a map and its defaults. */}}
{{- define "slurm.fill" -}}
{{- $target := index . 0 -}}
{{- range $key, $default := index . 1 -}}
{{- if kindIs "invalid" (index $target $key) -}}
{{- $_ := set $target $key $default -}}
{{- else if and (kindIs "map" $default) (kindIs "map" (index $target $key)) -}}
{{- include "slurm.fill" (list (index $target $key) $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Every template begins with it. What may be empty is not in here: there a null says something. */}}
{{- define "slurm.defaults" -}}
{{- include "slurm.fill" (list .Values (dict
  "imagePullPolicy" "IfNotPresent"
  "priorityClass" (dict "enabled" false "create" false "value" 1000000000 "preemptionPolicy" "PreemptLowerPriority")
  "slurmKey" (dict "create" true)
  "jwtKey" (dict "create" true)
  "jwksKeys" (dict "enabled" false)
  "controller" (dict
    "external" false
    "externalConfig" dict
    "ha" (dict "enabled" false "backups" 1)
    "service" dict
    "metrics" (dict "enabled" false)
  )
  "restapi" (dict "enabled" true "pdb" (dict "enabled" false "minAvailable" 1) "service" dict)
  "accounting" (dict "enabled" false "external" false "externalConfig" dict "service" dict)
  "mariadb" (dict "enabled" false "config" "")
  "sssd" dict
  "loginsetDefaults" dict
  "nodesetDefaults" dict
  "vendor" (dict
    "nvidia" (dict "dcgm" (dict "enabled" false "jobMappingDir" "/var/lib/dcgm-exporter/job-mapping" "scriptPriority" "90"))
    "google" dict
  )
  "networkPolicy" (dict "enabled" false "extraFrom" list "restapiFrom" list)
)) -}}
{{- /* A volume and a database of the user's may leave fields out. */ -}}
{{- if kindIs "invalid" .Values.controller.persistence -}}
{{- $_ := set .Values.controller "persistence" (dict
  "enabled" true
  "accessModes" (list "ReadWriteOnce")
  "resources" (dict "requests" (dict "storage" "4Gi"))
) -}}
{{- end -}}
{{- include "slurm.fill" (list .Values.controller.persistence (dict "enabled" true)) -}}
{{- if kindIs "invalid" .Values.accounting.storageConfig -}}
{{- $_ := set .Values.accounting "storageConfig" (dict
  "host" "mariadb"
  "port" 3306
  "database" "slurm_acct_db"
  "username" "slurm"
  "passwordKeyRef" (dict "name" "mariadb-password" "key" "password")
) -}}
{{- end -}}
{{- include "slurm.old.check" . -}}
{{- end -}}
