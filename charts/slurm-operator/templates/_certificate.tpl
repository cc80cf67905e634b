{{/* Where the webhook's certificate comes from: cert-manager, a Secret of yours, or this chart. */}}

{{- define "slurm-operator.certificate.source" -}}
{{- if .Values.certManager.enabled -}}
{{- if .Values.webhook.certificate.existingSecret -}}
{{- fail "webhook.certificate.existingSecret and certManager.enabled exclude each other: set certManager.enabled to false to use your certificate" -}}
{{- end -}}
cert-manager
{{- else if .Values.webhook.certificate.existingSecret -}}
existing
{{- else -}}
chart
{{- end -}}
{{- end -}}

{{- define "slurm-operator.certificate.secretName" -}}
{{- $default := "slurm-operator-webhook-ca" -}}
{{- if .Values.webhook.certificate.existingSecret -}}
{{- .Values.webhook.certificate.existingSecret -}}
{{- else if and (eq .Values.certManager.secretName $default) (include "slurm-operator.unique" .) -}}
{{- printf "%s-ca" (include "slurm-operator.webhook.name" .) -}}
{{- else -}}
{{- .Values.certManager.secretName | default $default -}}
{{- end -}}
{{- end -}}

{{- define "slurm-operator.certificate.dnsNames" -}}
{{- $service := include "slurm-operator.webhook.name" . -}}
{{- $namespace := include "slurm-operator.namespace" . -}}
{{- list $service (printf "%s.%s" $service $namespace) (printf "%s.%s.svc" $service $namespace) | toJson -}}
{{- end -}}

{{/*
The chart's own certificate as JSON {tls.crt, tls.key, ca.crt}, all in base64. What exists is kept, regardless of its origin,
unless it says that it is for other names: a new authority would be refused until every API server has the new bundle.
The authority's key is thrown away, so that nothing else can ever be signed with it.
*/}}
{{- define "slurm-operator.certificate.own" -}}
{{- $secret := include "slurm-operator.certificate.secretName" . -}}
{{- $names := include "slurm-operator.certificate.dnsNames" . | fromJsonArray -}}
{{- $live := lookup "v1" "Secret" (include "slurm-operator.namespace" .) $secret -}}
{{- $data := dig "data" dict ($live | default dict) | default dict -}}
{{- $madeFor := dig "metadata" "annotations" "slinky.slurm.net/dns-names" "" ($live | default dict) -}}
{{- $fits := or (not $madeFor) (eq $madeFor (join "," $names)) -}}
{{- if and $fits (index $data "tls.crt") (index $data "tls.key") (index $data "ca.crt") -}}
{{- pick $data "tls.crt" "tls.key" "ca.crt" | toJson -}}
{{- else -}}
{{- $days := int .Values.webhook.certificate.days -}}
{{- $authority := genCA (printf "%s-ca" (include "slurm-operator.webhook.name" .)) $days -}}
{{- $serving := genSignedCert (index $names 2) nil $names $days $authority -}}
{{- dict "tls.crt" (b64enc $serving.Cert) "tls.key" (b64enc $serving.Key) "ca.crt" (b64enc $authority.Cert) | toJson -}}
{{- end -}}
{{- end -}}

{{/*
What the API server trusts, in base64; takes a list of the context and the authority of the Secret, in base64. A pod sees
a new certificate up to two minutes after the API server has a new bundle, and serves the old one until then. So where
the authority is new, the one before stays in the bundle, until the next upgrade.
*/}}
{{- define "slurm-operator.certificate.ownBundle" -}}
{{- $context := index . 0 -}}
{{- $new := index . 1 -}}
{{- $name := include "slurm-operator.webhook.clusterName" $context -}}
{{- $live := lookup "admissionregistration.k8s.io/v1" "ValidatingWebhookConfiguration" "" $name | default dict -}}
{{- $before := "" -}}
{{- if eq "ours" (include "slurm-operator.owner" (list $context $live)) -}}
{{- range $live.webhooks }}{{ $before = dig "clientConfig" "caBundle" "" . | default $before }}{{ end -}}
{{- end -}}
{{- if or (not $before) (contains (trim (b64dec $new)) (b64dec $before)) -}}
{{- $new -}}
{{- else -}}
{{- printf "%s\n%s" (trim (b64dec $new)) (b64dec $before) | b64enc -}}
{{- end -}}
{{- end -}}

{{/* The CA of a Secret that this chart did not create, in base64. */}}
{{- define "slurm-operator.certificate.existingBundle" -}}
{{- $given := .Values.webhook.certificate.caBundle -}}
{{- if contains "-----BEGIN" $given -}}
{{- b64enc $given -}}
{{- else if $given -}}
{{- $given -}}
{{- else -}}
{{- $name := .Values.webhook.certificate.existingSecret -}}
{{- $namespace := include "slurm-operator.namespace" . -}}
{{- $data := dig "data" dict (lookup "v1" "Secret" $namespace $name | default dict) | default dict -}}
{{- index $data "ca.crt" | required (printf "webhook.certificate.caBundle is empty and there is no ca.crt in the Secret %s/%s: the API server must know who signed the webhook's certificate" $namespace $name) -}}
{{- end -}}
{{- end -}}
