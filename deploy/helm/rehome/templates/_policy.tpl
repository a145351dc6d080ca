{{/* The policy as a JSON map: the given body or the default one, merged with the additions. */}}
{{- define "rehome.policy" -}}
{{- $version := .Values.deschedulerPolicyAPIVersion -}}
{{- $policy := dict -}}
{{- if .Values.deschedulerPolicy -}}
{{- $policy = tpl (toYaml .Values.deschedulerPolicy) . | fromYaml -}}
{{- if $policy.Error -}}{{- fail (printf "deschedulerPolicy: it is no YAML any more after tpl: %s" $policy.Error) -}}{{- end -}}
{{- $body := ternary "strategies" "profiles" (eq $version "descheduler/v1alpha1") -}}
{{- if and (hasPrefix "descheduler/" $version) (not (hasKey $policy $body)) -}}
{{- fail (printf "deschedulerPolicy: want %s in a policy of %s, got none; Rehome would move nothing, because the chart does not add its default policy to yours" $body $version) -}}
{{- end -}}
{{- else -}}
{{- $policy = .Files.Get "files/policy.yaml" | fromYaml -}}
{{- $version = $policy.apiVersion -}}
{{- end -}}
{{- $over := tpl (toYaml .Values.policyAdditions) . | fromYaml -}}
{{- if .Values.knative.enabled -}}
{{- $asked := $over.functions | default $policy.functions | default list -}}
{{- range .Values.knative.strategies -}}
{{- $url := printf "http://%s.%s.svc.%s" (include "rehome.knativeName" (list $ .)) (include "rehome.namespace" $) $.Values.knative.clusterDomain -}}
{{- $asked = append $asked (dict "name" . "http" (dict "url" $url "timeout" $.Values.knative.timeout)) -}}
{{- end -}}
{{- $_ := set $over "functions" $asked -}}
{{- end -}}
{{- if $over -}}
{{- if eq $version "descheduler/v1alpha1" -}}
{{- fail "policyAdditions and knative: want deschedulerPolicyAPIVersion descheduler/v1alpha2 or rehome.dev/v1alpha1, got descheduler/v1alpha1; rehome policy convert writes the policy in a newer version" -}}
{{- end -}}
{{- $version = "rehome.dev/v1alpha1" -}}
{{- range $key, $value := $over -}}
{{- $_ := set $policy $key $value -}}
{{- end -}}
{{- end -}}
{{- $_ := set $policy "apiVersion" $version -}}
{{- $_ := set $policy "kind" "DeschedulerPolicy" -}}
{{- toJson $policy -}}
{{- end }}

{{- define "rehome.knativeName" -}}
{{- printf "%s-%s" (include "rehome.fullname" (index . 0)) (index . 1 | lower) | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/* All built-in strategies. */}}
{{- define "rehome.strategies" -}}
{{- .Files.Get "files/strategies.json" -}}
{{- end }}

{{/* The names of the functions in the policy, including those of Knative. */}}
{{- define "rehome.asked" -}}
{{- $names := list -}}
{{- range (include "rehome.policy" . | fromJson).functions -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- toJson $names -}}
{{- end }}

{{/* The strategies of the functions Deployment: all except external ones, which must have only one answer. Empty: all. */}}
{{- define "rehome.answered" -}}
{{- $asked := include "rehome.asked" . | fromJsonArray -}}
{{- $names := .Values.functions.strategies | default (include "rehome.strategies" . | fromJsonArray) -}}
{{- $left := list -}}
{{- range $names -}}
{{- if not (has . $asked) -}}{{- $left = append $left . -}}{{- end -}}
{{- end -}}
{{- if empty $left -}}
{{- fail (printf "functions.strategies: want one at least that is not asked elsewhere, got %s; the functions of the policy and knative.strategies are %s, and without a name rehome functions would answer all" (join ", " $names) (join ", " $asked)) -}}
{{- end -}}
{{- toJson (ternary .Values.functions.strategies $left (eq (len $left) (len $names))) -}}
{{- end }}
