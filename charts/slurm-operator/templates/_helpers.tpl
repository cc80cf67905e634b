{{/* Names, labels and small words that every template of this chart uses. */}}

{{- define "slurm-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "slurm-operator.fullname" -}}
{{- $name := include "slurm-operator.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "slurm-operator.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{- define "slurm-operator.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/*
Whether a live object is this release's: "ours", "theirs", or "" for an object that does not exist.
Takes a list of the context and the object.
*/}}
{{- define "slurm-operator.owner" -}}
{{- $context := index . 0 -}}
{{- $live := index . 1 -}}
{{- if $live -}}
{{- $marks := dig "metadata" "annotations" dict $live | default dict -}}
{{- $name := index $marks "meta.helm.sh/release-name" | default "" -}}
{{- $namespace := index $marks "meta.helm.sh/release-namespace" | default "" -}}
{{- if and (eq $name $context.Release.Name) (eq $namespace $context.Release.Namespace) }}ours{{ else }}theirs{{ end -}}
{{- end -}}
{{- end -}}

{{/*
"true" where objects are named after the release. The plain names (`slurm-operator`) are what existing installations
have and what documentation shows, so the first release keeps them. A later release finds them taken, and one that has
ever been named after itself stays so. Without a cluster to look at (helm template) the plain names are used.
*/}}
{{- define "slurm-operator.unique" -}}
{{- if not (kindIs "bool" .Values.uniqueNames) -}}
{{- /* Found out once per rendering: each look is a request. */ -}}
{{- $_ := set .Values "uniqueNames" (eq "true" (include "slurm-operator.namesAreTaken" .)) -}}
{{- end -}}
{{- if .Values.uniqueNames }}true{{ end -}}
{{- end -}}

{{- define "slurm-operator.namesAreTaken" -}}
{{- $name := include "slurm-operator.name" . -}}
{{- $full := include "slurm-operator.fullname" . -}}
{{- $namespace := include "slurm-operator.namespace" . -}}
{{- $hook := printf "%s-webhook" $name -}}
{{- $owners := list
  (include "slurm-operator.owner" (list . (lookup "apps/v1" "Deployment" $namespace $name)))
  (include "slurm-operator.owner" (list . (lookup "apps/v1" "Deployment" $namespace $hook)))
  (include "slurm-operator.owner" (list . (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" $hook)))
  (include "slurm-operator.owner" (list . (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" $full)))
  (include "slurm-operator.owner" (list . (lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" $hook)))
-}}
{{- $stays := false -}}
{{- if ne $name $full -}}
{{- $stays = eq "ours" (include "slurm-operator.owner" (list . (lookup "apps/v1" "Deployment" $namespace $full))) -}}
{{- end -}}
{{- if or $stays (has "theirs" $owners) }}true{{ end -}}
{{- end -}}

{{/* The name of the operator's objects in its namespace. */}}
{{- define "slurm-operator.operator.name" -}}
{{- if include "slurm-operator.unique" . -}}
{{- include "slurm-operator.fullname" . -}}
{{- else -}}
{{- include "slurm-operator.name" . -}}
{{- end -}}
{{- end -}}

{{/* The name of the operator's objects that have no namespace. */}}
{{- define "slurm-operator.operator.clusterName" -}}
{{- if include "slurm-operator.unique" . -}}
{{- printf "%s-%s" (include "slurm-operator.namespace" .) (include "slurm-operator.fullname" .) -}}
{{- else -}}
{{- include "slurm-operator.fullname" . -}}
{{- end -}}
{{- end -}}

{{/*
The namespace of the Lease. Two releases in one namespace would wait for each other: where each works in namespaces of
its own, the second has its Lease there. Two that both work everywhere share one, and only one of them works.
*/}}
{{- define "slurm-operator.operator.leaseNamespace" -}}
{{- $namespaces := include "slurm-operator.list" .Values.operator.namespaces | fromJsonArray -}}
{{- if and $namespaces (include "slurm-operator.unique" .) -}}
{{- first $namespaces -}}
{{- else -}}
{{- include "slurm-operator.namespace" . -}}
{{- end -}}
{{- end -}}

{{- define "slurm-operator.webhook.name" -}}
{{- printf "%s-webhook" (include "slurm-operator.operator.name" .) -}}
{{- end -}}

{{- define "slurm-operator.webhook.clusterName" -}}
{{- if include "slurm-operator.unique" . -}}
{{- printf "%s-webhook" (include "slurm-operator.operator.clusterName" .) -}}
{{- else -}}
{{- include "slurm-operator.webhook.name" . -}}
{{- end -}}
{{- end -}}

{{- define "slurm-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "slurm-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "slurm-operator.webhook.selectorLabels" -}}
app.kubernetes.io/name: {{ include "slurm-operator.name" . }}-webhook
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "slurm-operator.commonLabels" -}}
helm.sh/chart: {{ include "slurm-operator.chart" . }}
app.kubernetes.io/part-of: slurm-operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "slurm-operator.labels" -}}
{{ include "slurm-operator.commonLabels" . }}
{{ include "slurm-operator.selectorLabels" . }}
{{- end -}}

{{- define "slurm-operator.webhook.labels" -}}
{{ include "slurm-operator.commonLabels" . }}
{{ include "slurm-operator.webhook.selectorLabels" . }}
{{- end -}}

{{- define "slurm-operator.operator.serviceAccountName" -}}
{{- $account := .Values.operator.serviceAccount -}}
{{- $account.name | default (ternary (include "slurm-operator.fullname" .) "default" $account.create) -}}
{{- end -}}

{{- define "slurm-operator.webhook.serviceAccountName" -}}
{{- $account := .Values.webhook.serviceAccount -}}
{{- $account.name | default (ternary (include "slurm-operator.webhook.name" .) "default" $account.create) -}}
{{- end -}}

{{/* The port of the status API as text; empty where it is switched off. */}}
{{- define "slurm-operator.statusPort" -}}
{{- $port := include "slurm-operator.port" (list .Values.operator.statusPort "operator.statusPort" 0) -}}
{{- if and .Values.operator.enabled (ne $port "0") }}{{ $port }}{{ end -}}
{{- end -}}

{{/* The account whose tokens the status API accepts by default. */}}
{{- define "slurm-operator.viewerName" -}}
{{- printf "%s-viewer" (include "slurm-operator.operator.name" .) -}}
{{- end -}}

{{/*
Puts defaults in place of nulls, so that a null of the user's is no nil pointer. Takes a list of a map and its defaults.
*/}}
{{- define "slurm-operator.fill" -}}
{{- $target := index . 0 -}}
{{- range $key, $default := index . 1 -}}
{{- if kindIs "invalid" (index $target $key) -}}
{{- $_ := set $target $key $default -}}
{{- else if and (kindIs "map" $default) (kindIs "map" (index $target $key)) -}}
{{- include "slurm-operator.fill" (list (index $target $key) $default) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Every template begins with it. What may be empty is not in here: there a null says something. */}}
{{- define "slurm-operator.defaults" -}}
{{- range $name := list "operator" "webhook" -}}
{{- include "slurm-operator.fill" (list $.Values (dict $name (dict
  "enabled" true
  "replicas" 1
  "image" dict
  "serviceAccount" (dict "create" true "name" "")
  "pdb" (dict "enabled" false "minAvailable" 1)
  "healthPort" 8081
  "logLevel" "info"
))) -}}
{{- end -}}
{{- range $kind := list "accounting" "cluster" "controller" "loginset" "nodeset" "restapi" "token" -}}
{{- include "slurm-operator.fill" (list $.Values.operator (dict (printf "%sWorkers" $kind) 4)) -}}
{{- end -}}
{{- include "slurm-operator.fill" (list .Values (dict
  "imagePullPolicy" "IfNotPresent"
  "image" dict
  "crds" (dict "enabled" false)
  "operator" (dict "slurmclientWorkers" 2 "metricsPort" 8080 "statusPort" 8082 "leaderElection" true "profileAddr" "localhost:6060")
  "webhook" (dict
    "slurmKeys" true
    "serverPort" 9443
    "metricsPort" 0
    "timeoutSeconds" 10
    "shutdownDelay" "5s"
    "validating" (dict "failurePolicy" "Fail" "matchPolicy" "Equivalent")
    "mutating" (dict "failurePolicy" "Ignore" "matchPolicy" "Equivalent")
    "certificate" (dict "existingSecret" "" "caBundle" "" "days" 3650)
  )
  "certManager" (dict
    "enabled" true
    "secretName" "slurm-operator-webhook-ca"
    "duration" "43800h0m0s"
    "renewBefore" "8760h0m0s"
  )
  "networkPolicy" (dict "enabled" false)
  "monitoring" (dict
    "serviceMonitor" (dict "enabled" false "interval" "30s" "scrapeTimeout" "25s")
    "prometheusRule" (dict "enabled" false "runbookUrl" "docs/operations/alerts.md")
    "dashboards" (dict "enabled" false "namespace" "")
  )
)) -}}
{{- end -}}

{{/*
The image of a component; takes a list of the context, the component's values and the path of them.
The images of Slinky slurm-operator hold another program. A values file that still names them means "the operator", so the
image of this one is used, tag and digest included.
*/}}
{{- define "slurm-operator.image" -}}
{{- $context := index . 0 -}}
{{- $image := (index . 1).image -}}
{{- $path := index . 2 -}}
{{- if and (kindIs "map" $image) (kindIs "invalid" $image.repository) -}}
{{- if or $image.tag $image.digest -}}
{{- fail (printf "%s.image has a tag or a digest but no repository. Such a pin refers to an image of Slinky slurm-operator, which is another program. Remove it; to pin the image of this operator, set image.tag or image.digest" $path) -}}
{{- end -}}
{{- include "slurm-operator.ownImage" $context -}}
{{- else if include "slurm-operator.isGoImage" $image -}}
{{- include "slurm-operator.ownImage" $context -}}
{{- else -}}
{{- include "slurm-operator.imageName" (list $context $image (printf "%s.image" $path)) -}}
{{- end -}}
{{- end -}}

{{/* The image of this operator, which holds the webhook as well. */}}
{{- define "slurm-operator.ownImage" -}}
{{- $image := .Values.image -}}
{{- if and (kindIs "map" $image) (include "slurm-operator.isGoImage" $image) -}}
{{- $image = pick $image "registry" -}}
{{- end -}}
{{- if or (include "slurm-operator.isGoImage" $image) (and (kindIs "map" $image) (not $image.registry) (not $image.repository)) -}}
{{- fail "no image of the operator is named, and there is no public one. Build it in the repository of this chart (docker build -f images/operator/Dockerfile, see docs/reference/images.md), push it to a registry that the nodes can reach, and name it: --set image.registry=registry.example.com. If the nodes have the image without a registry: --set image.repository=slurm-operator" -}}
{{- end -}}
{{- include "slurm-operator.imageName" (list . $image "image") -}}
{{- end -}}

{{- define "slurm-operator.isGoImage" -}}
{{- $name := . -}}
{{- if not (kindIs "string" .) }}{{ $name = .repository | default "" }}{{ end -}}
{{- if regexMatch "^ghcr\\.io/slinkyproject/slurm-operator(-webhook)?([:@]|$)" $name }}true{{ end -}}
{{- end -}}

{{/* An image from a text, or from its parts; takes a list of the context, the image and its path. */}}
{{- define "slurm-operator.imageName" -}}
{{- $context := index . 0 -}}
{{- $image := index . 1 -}}
{{- $path := index . 2 -}}
{{- if kindIs "string" $image -}}
{{- if not $image }}{{ fail (printf "%s is empty: name an image, or leave the value out" $path) }}{{ end -}}
{{- $image -}}
{{- else -}}
{{- $repository := $image.repository -}}
{{- if kindIs "invalid" $repository }}{{ $repository = "slurm-operator" }}{{ end -}}
{{- if not $repository }}{{ fail (printf "%s.repository is empty: name a repository, or leave the value out" $path) }}{{ end -}}
{{- with $image.registry }}{{ $repository = printf "%s/%s" (trimSuffix "/" .) $repository }}{{ end -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $repository $image.digest -}}
{{- else -}}
{{- printf "%s:%v" $repository ($image.tag | default $context.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A port as a number; takes a list of the value, its path and the smallest port allowed. */}}
{{- define "slurm-operator.port" -}}
{{- $value := index . 0 -}}
{{- $path := index . 1 -}}
{{- $least := index . 2 | int -}}
{{- /* helm reads numbers of values files as float64, and %v of a large one is not decimal. */ -}}
{{- $text := ternary $value (printf "%d" (int64 $value)) (kindIs "string" $value) -}}
{{- if or (kindIs "bool" $value) (not (regexMatch "^(0|[1-9][0-9]{0,4})$" $text)) (lt (int $text) $least) (gt (int $text) 65535) -}}
{{- fail (printf "%s is %v: it must be a port from %d to 65535" $path $value $least) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* Names from a list, or from a text with commas, as JSON. */}}
{{- define "slurm-operator.list" -}}
{{- $items := ternary . (splitList "," (toString .)) (kindIs "slice" .) -}}
{{- $names := list -}}
{{- range $items -}}
{{- $names = append $names (trim (toString .)) -}}
{{- end -}}
{{- compact $names | uniq | toJson -}}
{{- end -}}

{{/* What a PodDisruptionBudget allows; takes the pdb values. */}}
{{- define "slurm-operator.pdb" -}}
{{- if kindIs "invalid" .maxUnavailable -}}
minAvailable: {{ kindIs "invalid" .minAvailable | ternary 1 .minAvailable }}
{{- else -}}
maxUnavailable: {{ .maxUnavailable }}
{{- end -}}
{{- end -}}

{{/* The scheduling fields of a component's pods; takes a list of the context and the component's values. */}}
{{- define "slurm-operator.podFields" -}}
{{- $context := index . 0 -}}
{{- $values := index . 1 -}}
{{- with $context.Values.imagePullSecrets }}
imagePullSecrets:
{{- toYaml . | nindent 0 }}
{{- end }}
{{- with $context.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- range $field := list "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" }}
{{- with index $values $field }}
{{ $field }}:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with $values.podSecurityContext }}
securityContext:
{{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/*
What a release of before does not know (helm upgrade --reuse-values) is as values.yaml has it: protection is not lost by that.
*/}}
{{- define "slurm-operator.deletionProtectionValues" -}}
{{- $defaults := dict
  "enabled" true
  "exemptUsers" (list "system:serviceaccount:kube-system:pod-garbage-collector")
  "exemptGroups" (list "system:nodes")
-}}
{{- $values := deepCopy (.Values.deletionProtection | default dict) -}}
{{- range $key, $value := $defaults -}}
{{- if kindIs "invalid" (index $values $key) }}{{ $_ := set $values $key $value }}{{ end -}}
{{- end -}}
{{- toJson $values -}}
{{- end -}}

{{- define "slurm-operator.removalRequests" -}}
{{- if ne (toString .Values.webhook.removalRequests) "false" }}true{{ end -}}
{{- end -}}

{{/*
A CEL expression: whether deletions by a requester are not refused. The operator always, and whom the values name.
*/}}
{{- define "slurm-operator.exempt" -}}
{{- $values := include "slurm-operator.deletionProtectionValues" . | fromJson -}}
{{- $operator := printf "system:serviceaccount:%s:%s" (include "slurm-operator.namespace" .) (include "slurm-operator.operator.serviceAccountName" .) -}}
{{- $users := prepend (include "slurm-operator.list" $values.exemptUsers | fromJsonArray) $operator | uniq -}}
request.userInfo.username in {{ toRawJson $users }}
{{- with include "slurm-operator.list" $values.exemptGroups | fromJsonArray }} ||
request.userInfo.?groups.orValue([]).exists(group, group in {{ toRawJson . }})
{{- end }}
{{- end -}}

{{/*
"true" where the ValidatingAdmissionPolicy is part of the release. A cluster that helm can look at has the API or has not. Where
it cannot (helm template), the version of Kubernetes decides, which --kube-version states.
*/}}
{{- define "slurm-operator.deletionProtection" -}}
{{- $served := .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" -}}
{{- if not (.Capabilities.APIVersions.Has "v1/Pod") -}}
{{- $served = or $served (semverCompare ">=1.30-0" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- $wanted := (include "slurm-operator.deletionProtectionValues" . | fromJson).enabled -}}
{{- if and $served .Values.operator.enabled $wanted }}true{{ end -}}
{{- end -}}

{{/* The reasons that pass only after an administrator has done something; a regular expression. */}}
{{- define "slurm-operator.blockedForGood" -}}
BudgetMissing|ClaimConflict|ClusterNameMismatch|ControllerGone|NameTaken|NeverRegistered
{{- end -}}

{{/* Whether no operator works: none leads, or none is scraped. Without an election there is no series of a leader. */}}
{{- define "slurm-operator.withoutLeader" -}}
{{- if .Values.operator.leaderElection -}}
sum(leader_election_master_status{name="slurm-operator"}) == 0 or absent(leader_election_master_status{name="slurm-operator"})
{{- else -}}
absent(slurm_operator_stuck_keys{controller="nodeset-controller"})
{{- end -}}
{{- end -}}
