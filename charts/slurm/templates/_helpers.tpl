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

{{/* The metadata of an object; takes a list of the context, the name and, if any, labels and annotations to add. */}}
{{- define "slurm.metadata" -}}
{{- $context := index . 0 -}}
{{- $more := dict -}}
{{- if gt (len .) 2 }}{{ $more = index . 2 | default dict }}{{ end -}}
{{- $labels := merge (dict) ($more.labels | default dict) (include "slurm.labels" $context | fromYaml) -}}
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
{{- fail (printf "slurmKey.secretRef.name is %s, and the cluster has its key in the Secret %s, which cannot be changed: keep that" $new.name $old.name) -}}
{{- end -}}
{{- if and (ne $old.key $new.key) (not (hasSuffix ".jwks" $new.key)) -}}
{{- range (lookup "slinky.slurm.net/v1beta1" "NodeSet" $namespace "" | default dict).items -}}
{{- if and (eq $name (dig "spec" "controllerRef" "name" "" .)) (dig "status" "replicas" 0 .) -}}
{{- fail (printf "slurmKey.secretRef.key is %s, and the cluster has %s: workers (of NodeSet %s) keep the old key while their jobs run, so slurmctld would lose touch with them and give the jobs up. Go in three steps with slurm.jwks (docs/situations/keys.md), or scale the NodeSets to 0 first, which waits for the jobs" $new.key $old.key .metadata.name) -}}
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
{{- else if and .Release.IsInstall (lookup "v1" "Namespace" "" $namespace) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "slurm.authJwt.ref" -}}
{{- $ref := .Values.jwtKey.secretRef | default dict -}}
{{- if not (or $ref.name $ref.key) }}{{ $ref = .Values.jwtHs256KeyRef | default dict }}{{ end -}}
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

{{/* "true" where the keys are somebody else's, because a daemon that has them already runs elsewhere. */}}
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
