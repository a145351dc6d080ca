{{/* Names, labels, and images. */}}

{{- define "rehome.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{/* The release name if it contains the chart name, at most 40 characters so that suffixes such as -functions fit. */}}
{{- define "rehome.fullname" -}}
{{- $name := include "rehome.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "rehome.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end }}

{{/* The selector labels of a part, which never change: a list of root and component. */}}
{{- define "rehome.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "rehome.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* All labels of an object: a list of root and component. The component can be empty. */}}
{{- define "rehome.labels" -}}
{{- $root := index . 0 -}}
{{- $labels := dict
  "app.kubernetes.io/name" (include "rehome.name" $root)
  "app.kubernetes.io/instance" $root.Release.Name
  "app.kubernetes.io/part-of" "rehome"
  "app.kubernetes.io/managed-by" $root.Release.Service
  "app.kubernetes.io/version" $root.Chart.AppVersion
  "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
{{- if gt (len .) 1 -}}
{{- $_ := set $labels "app.kubernetes.io/component" (index . 1) -}}
{{- end -}}
{{- toYaml (merge $labels $root.Values.commonLabels) -}}
{{- end }}

{{/* REPOSITORY:TAG or REPOSITORY@DIGEST: a list of root and the image values. */}}
{{- define "rehome.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (printf "v%s" $root.Chart.AppVersion)) -}}
{{- end -}}
{{- end }}

{{/* The ServiceAccount of a part: a list of root and component. The account of the mode all-in-one has no suffix. */}}
{{- define "rehome.serviceAccount" -}}
{{- $root := index . 0 -}}
{{- $suffix := ternary "" (printf "-%s" (index . 1)) (eq (index . 1) "all") -}}
{{- if or $root.Values.serviceAccount.name $root.Values.serviceAccount.create -}}
{{- printf "%s%s" ($root.Values.serviceAccount.name | default (include "rehome.fullname" $root)) $suffix -}}
{{- else -}}
default
{{- end -}}
{{- end }}

{{/* The name of the objects of a part: a list of root and component. */}}
{{- define "rehome.partName" -}}
{{- $root := index . 0 -}}
{{- if eq (index . 1) "all" -}}
{{- include "rehome.fullname" $root -}}
{{- else -}}
{{- printf "%s-%s" (include "rehome.fullname" $root) (index . 1) -}}
{{- end -}}
{{- end }}

{{- define "rehome.natsName" -}}
{{- printf "%s-nats" (include "rehome.fullname" .) -}}
{{- end }}

{{/* The Secret of a participant: a list of root and participant. */}}
{{- define "rehome.natsSecret" -}}
{{- $root := index . 0 -}}
{{- index $root.Values.nats.secrets (index . 1) | default (printf "%s-%s" (include "rehome.natsName" $root) (index . 1)) -}}
{{- end }}
