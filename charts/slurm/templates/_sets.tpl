{{/* LoginSets, NodeSets and partitions as they are after merging defaults, vendors' extras and older values. */}}

{{/* The merged values of every enabled LoginSet, by name, as JSON. */}}
{{- define "slurm.loginsets" -}}
{{- $sets := deepCopy (.Values.loginsets | default dict) -}}
{{- if and (dig "enabled" false (.Values.login | default dict)) (not (hasKey $sets "default")) -}}
{{- $_ := set $sets "default" (omit .Values.login "enabled") -}}
{{- end -}}
{{- $merged := dict -}}
{{- range $name, $values := $sets -}}
{{- $set := mergeOverwrite (deepCopy $.Values.loginsetDefaults) ($values | default dict) -}}
{{- if $set.enabled }}{{ $_ := set $merged $name $set }}{{ end -}}
{{- end -}}
{{- toJson $merged -}}
{{- end -}}

{{/* The merged values of every enabled NodeSet, by name, as JSON. */}}
{{- define "slurm.nodesets" -}}
{{- $merged := dict -}}
{{- range $name, $values := .Values.nodesets | default dict -}}
{{- $set := mergeOverwrite (deepCopy $.Values.nodesetDefaults) ($values | default dict | deepCopy) -}}
{{- if $set.enabled -}}
{{- range $vendor := list "slurm.vendor.dcgm" "slurm.vendor.a3mega" "slurm.vendor.a3ultra" -}}
{{- $patch := include $vendor (list $ $name $set) | fromJson -}}
{{- if $patch }}{{ $set = include "slurm.deepMerge" (list $set $patch) | fromJson }}{{ end -}}
{{- end -}}
{{- $_ := set $merged $name $set -}}
{{- end -}}
{{- end -}}
{{- toJson $merged -}}
{{- end -}}

{{/* "true" where users log in to a pod, which needs the common sssd.conf. */}}
{{- define "slurm.usersLogIn" -}}
{{- $found := false -}}
{{- range include "slurm.loginsets" . | fromJson -}}
{{- if not .sssdConf }}{{ $found = true }}{{ end -}}
{{- end -}}
{{- range include "slurm.nodesets" . | fromJson -}}
{{- if (.ssh | default dict).enabled }}{{ $found = true }}{{ end -}}
{{- end -}}
{{- if $found }}true{{ end -}}
{{- end -}}

{{/*
Two JSON values merged: maps key by key, lists item by item where items have a `key` or a `name`, and anything else the
right one. Takes a list of the two.
*/}}
{{- define "slurm.deepMerge" -}}
{{- $left := index . 0 -}}
{{- $right := index . 1 -}}
{{- if and (kindIs "map" $left) (kindIs "map" $right) -}}
{{- $result := dict -}}
{{- range $key, $value := $left }}{{ $_ := set $result $key $value }}{{ end -}}
{{- range $key, $value := $right -}}
{{- if hasKey $left $key -}}
{{- $merged := include "slurm.deepMerge" (list (get $left $key) $value) -}}
{{- $_ := set $result $key (printf "{\"value\":%s}" $merged | fromJson).value -}}
{{- else -}}
{{- $_ := set $result $key $value -}}
{{- end -}}
{{- end -}}
{{- toJson $result -}}
{{- else if and (kindIs "slice" $left) (kindIs "slice" $right) -}}
{{- $result := list -}}
{{- $taken := dict -}}
{{- range $item := $left -}}
{{- $id := include "slurm.itemId" $item -}}
{{- $merged := $item -}}
{{- range $other := $right -}}
{{- if and $id (eq $id (include "slurm.itemId" $other)) -}}
{{- $merged = (printf "{\"value\":%s}" (include "slurm.deepMerge" (list $merged $other)) | fromJson).value -}}
{{- $_ := set $taken $id true -}}
{{- end -}}
{{- end -}}
{{- $result = append $result $merged -}}
{{- end -}}
{{- range $item := $right -}}
{{- $id := include "slurm.itemId" $item -}}
{{- if not (and $id (hasKey $taken $id)) }}{{ $result = append $result $item }}{{ end -}}
{{- end -}}
{{- toJson $result -}}
{{- else -}}
{{- toJson $right -}}
{{- end -}}
{{- end -}}

{{- define "slurm.itemId" -}}
{{- if kindIs "map" . }}{{ .key | default .name | default "" }}{{ end -}}
{{- end -}}

{{/* The lines of slurm.conf that define partitions. */}}
{{- define "slurm.partitions" -}}
{{- $known := include "slurm.nodesets" . | fromJson -}}
{{- $lines := list -}}
{{- range $name, $partition := .Values.partitions | default dict -}}
{{- if dig "enabled" false ($partition | default dict) -}}
{{- $members := $partition.nodesets | default list | uniq | sortAlpha -}}
{{- if not $members -}}
{{- fail (printf "partitions.%s.nodesets is empty: name NodeSets of `nodesets`, or ALL" $name) -}}
{{- end -}}
{{- range $members -}}
{{- if and (ne . "ALL") (not (hasKey $known .)) -}}
{{- fail (printf "partitions.%s.nodesets names %s, which is not an enabled entry of `nodesets`: there are %s" $name . (keys $known | sortAlpha | join ", " | default "none")) -}}
{{- end -}}
{{- end -}}
{{- $config := include "slurm.conf" (list $partition.config $partition.configMap " ") -}}
{{- if contains "\n" (trim $config) -}}
{{- fail (printf "partitions.%s.config has several lines: a partition must be one line" $name) -}}
{{- end -}}
{{- $lines = append $lines (printf "PartitionName=%s Nodes=%s %s" $name (join "," $members) (trim $config) | trim) -}}
{{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end -}}
