{{/* Names and labels that every template of this chart uses. */}}

{{- define "slurm.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "slurm.fullname" -}}
{{- $name := include "slurm.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "slurm.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/*
No label here has a version in it: pods inherit the labels of their custom resource, and an upgrade of this chart is no
reason to restart a daemon.
*/}}
{{- define "slurm.labels" -}}
app.kubernetes.io/part-of: slurm
app.kubernetes.io/name: {{ include "slurm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/*
A custom resource of this cluster as it is, or an empty object; takes a list of the context, the kind and the name.

Charts of the Slinky project put their version into labels of the custom resource and of its pod template, and empty maps into the
template. Without them daemons would restart and workers be replaced, for nothing. So what is there stays.
*/}}
{{- define "slurm.live" -}}
{{- $namespace := include "slurm.namespace" (index . 0) -}}
{{- lookup "slinky.slurm.net/v1beta1" (index . 1) $namespace (index . 2) | default dict | toJson -}}
{{- end -}}

{{/*
Lines of a configuration as a JSON text; takes a list of the context, the kind and name of the custom resource, and the lines. An
empty line at the end, which charts of the Slinky project have or have not, changes the hash of the configuration, and with it
restarts the daemon.
*/}}
{{- define "slurm.extraConf" -}}
{{- $live := dig "spec" "extraConf" "" (include "slurm.live" (list (index . 0) (index . 1) (index . 2)) | fromJson) -}}
{{- $lines := index . 3 -}}
{{- eq (trim $live) (trim $lines) | ternary $live (printf "%s\n" (trimSuffix "\n" $lines)) | toRawJson -}}
{{- end -}}

{{/*
The metadata of an object; takes a list of the context, the name and, if any, labels and annotations to add and, for a custom
resource, its kind.
*/}}
{{- define "slurm.metadata" -}}
{{- $context := index . 0 -}}
{{- $more := dict -}}
{{- if gt (len .) 2 }}{{ $more = index . 2 | default dict }}{{ end -}}
{{- $kept := dict -}}
{{- if gt (len .) 3 -}}
{{- $live := include "slurm.live" (list $context (index . 3) (index . 1)) | fromJson -}}
{{- $kept = pick (dig "metadata" "labels" dict $live) "helm.sh/chart" "app.kubernetes.io/version" -}}
{{- end -}}
{{- $labels := merge (dict) ($more.labels | default dict) $kept (include "slurm.labels" $context | fromYaml) -}}
name: {{ index . 1 }}
namespace: {{ include "slurm.namespace" $context }}
labels:
  {{- toYaml $labels | nindent 2 }}
{{- with $more.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "slurm.authSlurm.ref" -}}
{{- $ref := .Values.slurmKey.secretRef | default dict -}}
{{- if not (or $ref.name $ref.key) }}{{ $ref = .Values.slurmKeyRef | default dict }}{{ end -}}
{{- dict "name" ($ref.name | default (printf "%s-auth-slurm" (include "slurm.fullname" .))) "key" ($ref.key | default "slurm.key") | toJson -}}
{{- end -}}

{{/*
Refuses, before anything is changed, what the API server would refuse half-way: another Secret for the key of the daemons,
or another single key for those that run.
*/}}
{{- define "slurm.slurmKey.check" -}}
{{- $namespace := include "slurm.namespace" . -}}
{{- $name := include "slurm.fullname" . -}}
{{- $live := lookup "slinky.slurm.net/v1beta1" "Controller" $namespace $name | default dict -}}
{{- $old := dig "spec" "slurmKeyRef" dict $live -}}
{{- $new := include "slurm.authSlurm.ref" . | fromJson -}}
{{- if and $old (not (dig "spec" "external" false $live)) (not .Values.controller.external) -}}
{{- if ne $old.name $new.name -}}
{{- fail (printf "slurmKey.secretRef.name is %s, but the cluster has its key in the Secret %s, which cannot be changed: keep that name" $new.name $old.name) -}}
{{- end -}}
{{- if and (ne $old.key $new.key) (not (hasSuffix ".jwks" $new.key)) -}}
{{- range (lookup "slinky.slurm.net/v1beta1" "NodeSet" $namespace "" | default dict).items -}}
{{- if and (eq $name (dig "spec" "controllerRef" "name" "" .)) (dig "status" "replicas" 0 .) -}}
{{- fail (printf "slurmKey.secretRef.key is %s, but the cluster has %s: workers (of NodeSet %s) keep the old key while their jobs run, so slurmctld would lose contact with them and fail the jobs. Rotate the key in three steps with slurm.jwks (docs/guides/keys.md), or scale the NodeSets to 0 first, which waits for the jobs" $new.key $old.key .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
"true" where jobs have memory limits of their own. Without a word of the user a new cluster gets them; one that exists keeps what
it has. An installation that cannot look into the cluster does not know whether there is one, and changes nothing.
*/}}
{{- define "slurm.constrainMemory" -}}
{{- $given := .Values.controller.constrainMemory -}}
{{- $namespace := include "slurm.namespace" . -}}
{{- if kindIs "bool" $given -}}
{{- if $given }}true{{ end -}}
{{- else -}}
{{- $live := lookup "slinky.slurm.net/v1beta1" "Controller" $namespace (include "slurm.fullname" .) | default dict -}}
{{- if $live -}}
{{- dig "metadata" "annotations" "slinky.slurm.net/constrain-memory" "" $live -}}
{{- /* A list has a kind, also if it is empty, where there is a cluster to look into; the namespace may yet have to be made. */ -}}
{{- else if and .Release.IsInstall (lookup "slinky.slurm.net/v1beta1" "Controller" $namespace "") -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "slurm.authJwt.ref" -}}
{{- $ref := .Values.jwtKey.secretRef | default dict -}}
{{- if not (or $ref.name $ref.key) }}{{ $ref = .Values.jwtHs256KeyRef | default dict }}{{ end -}}
{{- if not (or $ref.name $ref.key) -}}
{{- /* It cannot be changed, and 1.0 had another default. */ -}}
{{- $spec := dig "spec" dict (include "slurm.live" (list . "Controller" (include "slurm.fullname" .)) | fromJson) -}}
{{- $ref = $spec.jwtKeyRef | default $spec.jwtHs256KeyRef | default dict -}}
{{- end -}}
{{- dict "name" ($ref.name | default (printf "%s-auth-jwt" (include "slurm.fullname" .))) "key" ($ref.key | default "jwt.key") | toJson -}}
{{- end -}}

{{- define "slurm.authJwks.ref" -}}
{{- $ref := .Values.jwksKeys.configMapRef | default dict -}}
{{- dict "name" ($ref.name | default (printf "%s-auth-jwks" (include "slurm.fullname" .))) "key" ($ref.key | default "jwks.json") | toJson -}}
{{- end -}}

{{- define "slurm.sssd.ref" -}}
{{- $ref := .Values.sssd.secretRef | default dict -}}
{{- dict "name" ($ref.name | default (printf "%s-sssd-conf" (include "slurm.fullname" .))) "key" ($ref.key | default "sssd.conf") | toJson -}}
{{- end -}}

{{/*
The text of sssd.conf. Defaults have changed, and another text replaces login pods, with the sessions in them. So where the user
has the default, a default that is there stays: that of this chart up to 0.1, with a line that SSSD 2.10 ignores, or that of 1.2.
*/}}
{{- define "slurm.sssd.conf" -}}
{{- $conf := .Values.sssd.conf | required "sssd.conf is empty: write one, or name a Secret with one in sssd.secretRef" -}}
{{- $defaults := list
  "94feb60645f5a76bbb9f029b86f5264fb4d08ba6ac9f0d6ac0e37bc2fcb1384a"
  "9b0385e14183b6fd79a9dfee3564715c04986ac055f667a1b73ef88ec06a2b0c"
-}}
{{- $ref := include "slurm.sssd.ref" . | fromJson -}}
{{- $data := dig "data" dict (lookup "v1" "Secret" (include "slurm.namespace" .) $ref.name | default dict) | default dict -}}
{{- $live := index $data $ref.key | default "" | b64dec -}}
{{- if and (has (trim $conf | sha256sum) $defaults) (has (trim $live | sha256sum) $defaults) }}{{ $conf = $live }}{{ end -}}
{{- $conf -}}
{{- end -}}

{{/* References to the keys of the cluster, the same for Controller and Accounting. */}}
{{- define "slurm.keyRefs" -}}
slurmKeyRef:
  {{- include "slurm.authSlurm.ref" . | fromJson | toYaml | nindent 2 }}
jwtKeyRef:
  {{- include "slurm.authJwt.ref" . | fromJson | toYaml | nindent 2 }}
{{- if .Values.jwksKeys.enabled }}
jwksKeyRef:
  {{- include "slurm.authJwks.ref" . | fromJson | toYaml | nindent 2 }}
{{- end }}
{{- end -}}

{{/* "true" where slurmdbd runs elsewhere. An object is the older way to say that the database does. */}}
{{- define "slurm.accounting.external" -}}
{{- if and (kindIs "bool" .Values.accounting.external) .Values.accounting.external }}true{{ end -}}
{{- end -}}

{{/* "true" where the keys are managed elsewhere, because a daemon that has them already runs elsewhere. */}}
{{- define "slurm.keysFromElsewhere" -}}
{{- if or .Values.controller.external (and .Values.accounting.enabled (include "slurm.accounting.external" .)) }}true{{ end -}}
{{- end -}}

{{- define "slurm.cluster.name" -}}
{{- printf "%s-cluster-%s" (include "slurm.fullname" (index . 0)) (index . 1) -}}
{{- end -}}

{{/*
Whether a live object is this release's: "ours", "theirs", or "" for an object that does not exist.
Takes a list of the context and the object.
*/}}
{{- define "slurm.owner" -}}
{{- $context := index . 0 -}}
{{- $live := index . 1 -}}
{{- if $live -}}
{{- $marks := dig "metadata" "annotations" dict $live | default dict -}}
{{- $name := index $marks "meta.helm.sh/release-name" | default "" -}}
{{- $namespace := index $marks "meta.helm.sh/release-namespace" | default "" -}}
{{- if and (eq $name $context.Release.Name) (eq $namespace $context.Release.Namespace) }}ours{{ else }}theirs{{ end -}}
{{- end -}}
{{- end -}}
