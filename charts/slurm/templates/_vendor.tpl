{{/*
What some machines need, as patches of a NodeSet's values. Each takes a list of the context, the NodeSet's name and its
merged values, and gives JSON; an empty object changes nothing.
*/}}

{{/* "true" where a NodeSet asks for NVIDIA's GPUs; takes its values. */}}
{{- define "slurm.usesGpus" -}}
{{- $found := false -}}
{{- range $resources := list (.slurmd | default dict).resources (.podSpec | default dict).resources -}}
{{- range $kind := list "limits" "requests" -}}
{{- if hasKey (dig $kind dict ($resources | default dict) | default dict) "nvidia.com/gpu" }}{{ $found = true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if $found }}true{{ end -}}
{{- end -}}

{{- define "slurm.vendor.dcgm" -}}
{{- $context := index . 0 -}}
{{- $set := index . 2 -}}
{{- $dcgm := $context.Values.vendor.nvidia.dcgm -}}
{{- $patch := dict -}}
{{- if and $dcgm.enabled (include "slurm.usesGpus" $set) -}}
{{- $volume := dict "name" "dcgm-job-mapping" "hostPath" (dict "path" $dcgm.jobMappingDir "type" "DirectoryOrCreate") -}}
{{- $mount := dict "name" "dcgm-job-mapping" "mountPath" $dcgm.jobMappingDir -}}
{{- $patch = dict "slurmd" (dict "volumeMounts" (list $mount)) "podSpec" (dict "volumes" (list $volume)) -}}
{{- end -}}
{{- toJson $patch -}}
{{- end -}}

{{/* The entry of a vendor's list for one NodeSet, as JSON; takes a list of the list, its path, and the NodeSet's name. */}}
{{- define "slurm.vendor.google.entry" -}}
{{- $path := index . 1 -}}
{{- $name := index . 2 -}}
{{- $found := dict -}}
{{- range $index, $entry := index . 0 | default list -}}
{{- if ne 9 (len ($entry.networks | default list)) -}}
{{- fail (printf "%s[%d].networks has %d of 9 entries: name a network for each of the 9 network interfaces of these nodes" $path $index (len ($entry.networks | default list))) -}}
{{- end -}}
{{- if eq $entry.targetNodeSet $name }}{{ $found = $entry }}{{ end -}}
{{- end -}}
{{- toJson $found -}}
{{- end -}}

{{/* Every targetNodeSet must be there, on or off, or the extras would go nowhere without a word. */}}
{{- define "slurm.vendor.google.check" -}}
{{- $known := keys (.Values.nodesets | default dict) | sortAlpha -}}
{{- range $machine := list "a3mega" "a3ultra" -}}
{{- range $index, $entry := index $.Values.vendor.google $machine | default list -}}
{{- if not (has $entry.targetNodeSet $known) -}}
{{- fail (printf "vendor.google.%s[%d].targetNodeSet is %v, which is not an entry of `nodesets`: there are %s" $machine $index $entry.targetNodeSet (join ", " $known | default "none")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The annotation that gives a pod its network interfaces; takes a list of networks and of interface names. */}}
{{- define "slurm.vendor.google.interfaces" -}}
{{- $names := index . 1 -}}
{{- $interfaces := list -}}
{{- range $index, $network := index . 0 -}}
{{- $interfaces = append $interfaces (dict "interfaceName" (index $names $index) "network" $network) -}}
{{- end -}}
{{- toJson $interfaces -}}
{{- end -}}

{{- define "slurm.vendor.a3mega" -}}
{{- $context := index . 0 -}}
{{- $entry := include "slurm.vendor.google.entry" (list $context.Values.vendor.google.a3mega "vendor.google.a3mega" (index . 1)) | fromJson -}}
{{- if $entry -}}
{{- $names := list "eth0" "eth1" "eth2" "eth3" "eth4" "eth5" "eth6" "eth7" "eth8" -}}
{{- $interfaces := include "slurm.vendor.google.interfaces" (list $entry.networks $names) -}}
{{- tpl ($context.Files.Get "files/a3mega.yaml") (dict "Template" $context.Template "entry" $entry "interfaces" $interfaces) | fromYaml | toJson -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{- define "slurm.vendor.a3ultra" -}}
{{- $context := index . 0 -}}
{{- $entry := include "slurm.vendor.google.entry" (list $context.Values.vendor.google.a3ultra "vendor.google.a3ultra" (index . 1)) | fromJson -}}
{{- if $entry -}}
{{- /* eth1 is the machine's second ordinary interface; the others reach the GPUs. */ -}}
{{- $names := list "eth0" "eth2" "eth3" "eth4" "eth5" "eth6" "eth7" "eth8" "eth9" -}}
{{- $interfaces := list -}}
{{- range $index, $network := $entry.networks -}}
{{- $interfaces = append $interfaces (printf "  {\"interfaceName\":%q,\"network\":%q}" (index $names $index) $network) -}}
{{- end -}}
{{- /* The key is the Slinky chart's, unless the user has written it otherwise: Slurm knows one. */ -}}
{{- $gres := hasKey ((index . 2).extraConfMap | default dict) "Gres" | ternary "Gres" "gres" -}}
{{- $interfaces = printf "[\n%s\n]\n" (join ",\n" $interfaces) -}}
{{- tpl ($context.Files.Get "files/a3ultra.yaml") (dict "Template" $context.Template "entry" $entry "interfaces" $interfaces "gres" $gres) | fromYaml | toJson -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{/*
The machine whose ConfigMap has the gres.conf: "a3mega", "a3ultra" or "". Both would have the same file, and two files of
one name cannot be mounted, so with both the first one has it. A gres.conf of the user's replaces it.
*/}}
{{- define "slurm.vendor.google.gres" -}}
{{- if not (hasKey (.Values.configFiles | default dict) "gres.conf") -}}
{{- if .Values.vendor.google.a3mega -}}
a3mega
{{- else if .Values.vendor.google.a3ultra -}}
a3ultra
{{- end -}}
{{- end -}}
{{- end -}}
