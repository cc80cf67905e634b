{{/*
What the operator and the webhook may do, and nothing else. tests/integration/charts runs both under exactly these
rules and lists what is missing and what is unused.
*/}}

{{/* Permissions in every namespace that the operator manages. */}}
{{- define "slurm-operator.operator.rules" -}}
- apiGroups: [slinky.slurm.net]
  resources: [accountings, clusters, controllers, loginsets, nodesets, restapis, tokens]
  verbs: [get, list, watch]
# The finalizer that guards a reservation of a NodeSet.
- apiGroups: [slinky.slurm.net]
  resources: [nodesets]
  verbs: [patch]
- apiGroups: [slinky.slurm.net]
  resources:
  - accountings/status
  - clusters/status
  - controllers/status
  - loginsets/status
  - nodesets/status
  - restapis/status
  - tokens/status
  verbs: [patch]
# Needed to own objects where OwnerReferencesPermissionEnforcement is on, as on OpenShift. A worker that is scaled in owns
# its claims.
- apiGroups: [slinky.slurm.net]
  resources:
  - accountings/finalizers
  - controllers/finalizers
  - loginsets/finalizers
  - nodesets/finalizers
  - restapis/finalizers
  - tokens/finalizers
  verbs: [update]
- apiGroups: [""]
  resources: [pods/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [configmaps, pods, secrets, services]
  verbs: [get, list, watch, create, patch, delete]
# The operator deletes neither: a claim that is no longer wanted gets owners that are deleted with it, and a budget has
# all NodeSets of a cluster for owners. But where OwnerReferencesPermissionEnforcement is on, only those may give an object
# other owners who may delete it.
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [controllerrevisions, statefulsets]
  verbs: [get, list, watch, create, patch, delete]
# They go with their owners, by Kubernetes' own hand.
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch]
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{/* Permissions that only a ClusterRole can grant. */}}
{{- define "slurm-operator.operator.clusterRules" -}}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, watch]
# Whether a volume of slurmctld can grow.
- apiGroups: [storage.k8s.io]
  resources: [storageclasses]
  verbs: [get]
{{- if or .Values.operator.metricsSecure (include "slurm-operator.statusPort" .) }}
{{ include "slurm-operator.reviewRules" . }}
{{- end }}
{{- end -}}

{{/* Permissions in the namespace of the Lease. */}}
{{- define "slurm-operator.operator.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, create, patch]
{{- end -}}

{{/* What the account may list whose tokens the status API accepts. */}}
{{- define "slurm-operator.viewer.rules" -}}
- apiGroups: [slinky.slurm.net]
  resources: [nodesets]
  verbs: [list]
{{- end -}}

{{/* To find the replica that leads. */}}
{{- define "slurm-operator.viewer.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [slurm-operator]
  verbs: [get]
{{- end -}}

{{- define "slurm-operator.webhook.rules" -}}
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims]
  verbs: [get]
# Whether two of them have workers of one name.
- apiGroups: [slinky.slurm.net]
  resources: [nodesets]
  verbs: [list]
# Whose key is to be replaced, and whether workers have it.
- apiGroups: [slinky.slurm.net]
  resources: [controllers]
  verbs: [list]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
{{- if or .Values.webhook.podsBinding (include "slurm-operator.removalRequests" .) }}
- apiGroups: [""]
  resources: [pods]
  verbs: [get]
{{- end }}
{{- if include "slurm-operator.removalRequests" . }}
# An annotation on a worker. With this right the metadata and status of a pod can be changed, and not what it runs.
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
{{- end }}
{{- end -}}

{{- define "slurm-operator.webhook.clusterRules" -}}
{{- if .Values.webhook.podsBinding }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
{{- end }}
{{- if .Values.webhook.metricsSecure }}
{{ include "slurm-operator.reviewRules" . }}
{{- end }}
{{- end -}}

{{/* To find out who scrapes metrics or reads the status, and whether they may. */}}
{{- define "slurm-operator.reviewRules" -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
- apiGroups: [authorization.k8s.io]
  resources: [subjectaccessreviews]
  verbs: [create]
{{- end -}}

{{/* One role and its binding; takes a dict of name, namespace (empty: cluster-wide), labels, rules and account. */}}
{{- define "slurm-operator.grant" -}}
{{- $prefix := ternary "" "Cluster" (ne .namespace "") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}Role
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- .labels | nindent 4 }}
rules:
{{ trim .rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $prefix }}RoleBinding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- .labels | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $prefix }}Role
  name: {{ .name }}
subjects:
- kind: ServiceAccount
  name: {{ .account.name }}
  namespace: {{ .account.namespace }}
{{- end -}}

{{/*
All roles of a component; takes a dict of name, namespaces, labels, rules, clusterRules and account.
Without namespaces one ClusterRole holds everything. With them, each namespace gets a Role, and a ClusterRole is left
with what has no namespace.
*/}}
{{- define "slurm-operator.grants" -}}
{{- $all := . -}}
{{- $wide := .clusterRules -}}
{{- if not .namespaces -}}
{{- $wide = printf "%s\n%s" .rules .clusterRules -}}
{{- end -}}
{{- if trim $wide -}}
{{- include "slurm-operator.grant" (merge (dict "namespace" "" "rules" $wide) $all) -}}
{{- end -}}
{{- range .namespaces -}}
{{- include "slurm-operator.grant" (merge (dict "namespace" . "rules" $all.rules) $all) -}}
{{- end -}}
{{- end -}}
