{{/* Parts of custom resources, from values that leave room: images, containers, pods, configuration lines. */}}

{{/* The image in `imageRegistry` that stands for a default of values.yaml; nothing for any other image. Takes a list of the
context and the image. */}}
{{- define "slurm.releasedImage" -}}
{{- $context := index . 0 -}}
{{- $image := index . 1 -}}
{{- $names := dict
  "docker.io/library/alpine:latest" "tools"
  "docker.io/library/mariadb:11.8" "mariadb"
-}}
{{- range $name := list "slurmctld" "slurmd" "slurmdbd" "slurmrestd" "login" -}}
{{- $_ := set $names (printf "ghcr.io/slinkyproject/%s:26.05-ubuntu26.04" $name) $name -}}
{{- end -}}
{{- if and $context.Values.imageRegistry (kindIs "map" $image) -}}
{{- $name := index $names (printf "%v:%v" $image.repository $image.tag) -}}
{{- if and $name (not $image.digest) -}}
{{- $repository := printf "%s/%s" (trimSuffix "/" $context.Values.imageRegistry) $name -}}
{{- with index ($context.Values.imageDigests | default dict) $name -}}
{{- printf "%s@%s" $repository . -}}
{{- else -}}
{{- printf "%s:%s" $repository $context.Chart.AppVersion -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* An image from a text, or from repository, tag and digest; takes a list of the context, the image and its path in the values. */}}
{{- define "slurm.image" -}}
{{- $released := include "slurm.releasedImage" (list (index . 0) (index . 1)) -}}
{{- $image := index . 1 -}}
{{- $path := index . 2 -}}
{{- if $released -}}
{{- $released -}}
{{- else if kindIs "string" $image -}}
{{- $image | required (printf "%s is empty: name an image" $path) -}}
{{- else if not $image -}}
{{- fail (printf "%s is missing: name an image" $path) -}}
{{- else -}}
{{- $repository := $image.repository | required (printf "%s.repository is empty: name a repository" $path) -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else if kindIs "invalid" $image.tag -}}
{{- fail (printf "%s has neither tag nor digest: name one of them" $path) -}}
{{- else -}}
{{- printf "%s:%v" $repository ($image.tag | toString | required (printf "%s has neither tag nor digest: name one of them" $path)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A map without empty maps, empty lists and nulls: in a pod they would wipe out what the operator puts there. */}}
{{- define "slurm.compact" -}}
{{- $kept := dict -}}
{{- range $key, $value := . -}}
{{- $empty := or (kindIs "invalid" $value) (and (or (kindIs "map" $value) (kindIs "slice" $value)) (not $value)) -}}
{{- if not $empty }}{{ $_ := set $kept $key $value }}{{ end -}}
{{- end -}}
{{- toJson $kept -}}
{{- end -}}

{{/* A container of a custom resource; takes a list of the context, the container's values and their path. */}}
{{- define "slurm.container" -}}
{{- $context := index . 0 -}}
{{- $container := index . 1 | default dict -}}
{{- $path := index . 2 -}}
{{- $result := include "slurm.compact" $container | fromJson -}}
{{- $_ := set $result "image" (include "slurm.image" (list $context $container.image (printf "%s.image" $path))) -}}
{{- $_ := set $result "imagePullPolicy" ($container.imagePullPolicy | default $context.Values.imagePullPolicy) -}}
{{- toYaml $result -}}
{{- end -}}

{{/*
A pod template of a custom resource; takes a list of the context, the metadata, the podSpec and, for one that may exist already,
its kind and name.
*/}}
{{- define "slurm.template" -}}
{{- $context := index . 0 -}}
{{- $metadata := index . 1 | default dict -}}
{{- $spec := index . 2 | default dict -}}
{{- $result := include "slurm.compact" $spec | fromJson -}}
{{- $live := dict -}}
{{- if gt (len .) 3 -}}
{{- $live = dig "spec" "template" dict (include "slurm.live" (list $context (index . 3) (index . 4)) | fromJson) -}}
{{- end -}}
{{- $kept := pick (dig "metadata" "labels" dict $live) "helm.sh/chart" "app.kubernetes.io/part-of" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" -}}
{{- if $kept -}}
{{- $metadata = mergeOverwrite (dict "labels" $kept) (deepCopy $metadata) -}}
{{- end -}}
{{- range $key, $value := dig "spec" dict $live -}}
{{- if and (kindIs "map" $value) (not $value) (kindIs "map" (index $spec $key)) (not (hasKey $result $key)) -}}
{{- $_ := set $result $key dict -}}
{{- end -}}
{{- end -}}
{{- with concat ($spec.imagePullSecrets | default list) ($context.Values.imagePullSecrets | default list) | uniq -}}
{{- $_ := set $result "imagePullSecrets" . -}}
{{- end -}}
{{- if and $context.Values.priorityClassName (not $result.priorityClassName) -}}
{{- $_ := set $result "priorityClassName" $context.Values.priorityClassName -}}
{{- else if and $context.Values.priorityClass.enabled (not $result.priorityClassName) -}}
{{- $_ := set $result "priorityClassName" (include "slurm.priorityClassName" $context) -}}
{{- end -}}
{{- with include "slurm.compact" $metadata | fromJson }}
metadata:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $result }}
spec:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "slurm.priorityClassName" -}}
{{- .Values.priorityClass.name | default "slurm-priority-critical" -}}
{{- end -}}

{{/* A Service of a custom resource; takes the service's values. */}}
{{- define "slurm.service" -}}
{{- with include "slurm.compact" (. | default dict) | fromJson -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* One value of a configuration: lists with commas, whole numbers without an exponent. */}}
{{- define "slurm.confValue" -}}
{{- if kindIs "slice" . -}}
{{- $items := list -}}
{{- range . }}{{ $items = append $items (include "slurm.confValue" .) }}{{ end -}}
{{- join "," (compact $items) -}}
{{- else if and (kindIs "float64" .) (eq (float64 (int64 .)) .) -}}
{{- int64 . -}}
{{- else if not (kindIs "invalid" .) -}}
{{- trim (toString .) -}}
{{- end -}}
{{- end -}}

{{/* Key=Value pairs of a map, sorted by key; takes a list of the text that wins, the map, and what stands between pairs. */}}
{{- define "slurm.conf" -}}
{{- $raw := index . 0 -}}
{{- if $raw -}}
{{- $raw -}}
{{- else -}}
{{- $pairs := list -}}
{{- range $key, $value := index . 1 | default dict -}}
{{- with include "slurm.confValue" $value -}}
{{- $pairs = append $pairs (printf "%s=%s" $key .) -}}
{{- end -}}
{{- end -}}
{{- join (index . 2) $pairs -}}
{{- end -}}
{{- end -}}

{{/* A list of names as references. */}}
{{- define "slurm.refs" -}}
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end -}}
