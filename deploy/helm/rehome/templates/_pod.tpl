{{/* The pods. */}}

{{/* The settings of a part as entries of env, as JSON: a list of root and component. */}}
{{- define "rehome.env" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $v := $root.Values -}}
{{- $flags := include "rehome.flags" $root | fromJson -}}
{{- $env := dict "REHOME_CLUSTER" $v.cluster "REHOME_INSTALLATION" $v.installation -}}
{{- $_ := set $env "REHOME_LOG_LEVEL" ($v.logging.level | default $flags.env.REHOME_LOG_LEVEL | default "INFO") -}}
{{- $_ := set $env "REHOME_LOG_FORMAT" ($v.logging.format | default $flags.env.REHOME_LOG_FORMAT | default "text") -}}
{{- with include "rehome.resources" (list $root $part) | fromYaml | include "rehome.goMemLimit" -}}{{- $_ := set $env "GOMEMLIMIT" . -}}{{- end -}}
{{- if has $part (list "all" "watcher" "actuator" "maintenance" "api" "dispatcher" "once" "setup") -}}
{{- $_ := set $env "REHOME_POLICY" "/etc/rehome/policy/policy.yaml" -}}
{{- end -}}
{{- if has $part (list "all" "watcher" "actuator" "maintenance" "api" "once" "setup") -}}
{{- with $flags.env.REHOME_KUBECONFIG -}}{{- $_ := set $env "REHOME_KUBECONFIG" . -}}{{- end -}}
{{- end -}}
{{- if has $part (list "all" "watcher" "actuator" "maintenance" "api" "once") -}}
{{- if include "rehome.dryRun" $root -}}{{- $_ := set $env "REHOME_DRY_RUN" "true" -}}{{- end -}}
{{- $_ := set $env "REHOME_LEASE_NAMESPACE" (include "rehome.leaseNamespace" $root) -}}
{{- with $v.leaderElection.leaseDuration | default $flags.env.REHOME_LEASE_DURATION -}}
{{- $_ := set $env "REHOME_LEASE_DURATION" . -}}
{{- end -}}
{{- end -}}
{{- if and (eq $part "all") (not $v.maintenance.enabled) -}}{{- $_ := set $env "REHOME_MAINTENANCE" "false" -}}{{- end -}}
{{- if has $part (list "all" "watcher" "setup") -}}
{{- with $v.deschedulingInterval | default $flags.env.REHOME_RESYNC -}}
{{- $_ := set $env "REHOME_RESYNC" (ternary "1m" . (lt (include "rehome.milliseconds" (list "deschedulingInterval" .) | int) 60000)) -}}
{{- end -}}
{{- end -}}
{{- if not (has $part (list "once" "setup")) -}}
{{- $_ := set $env "REHOME_HTTP_ADDRESS" (printf ":%s" (include "rehome.port" $root)) -}}
{{- include "rehome.servingEnv" (list $root $part $env) -}}
{{- end -}}
{{- if and (eq $part "all") (not (include "rehome.external" $root)) -}}
{{- $_ := set $env "REHOME_STORE_DIR" "/var/lib/rehome" -}}
{{- $_ := set $env "REHOME_STORE_RESERVE" (include "rehome.bytes" $v.storeReserve) -}}
{{- end -}}
{{- if and (ne $part "once") (include "rehome.external" $root) -}}
{{- include "rehome.natsEnv" (list $root $part $env) -}}
{{- end -}}
{{- range $v.extraEnv -}}
{{- $env = omit $env .name -}}{{/* the later entry overrides it */}}
{{- end -}}
{{- $list := list -}}
{{- range $name, $value := $env -}}
{{- $list = append $list (dict "name" $name "value" $value) -}}
{{- end -}}
{{- toJson (concat $list $v.extraEnv) -}}
{{- end }}

{{/* Adds the settings for serving: a list of root, component, and the settings. */}}
{{- define "rehome.servingEnv" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $env := index . 2 -}}
{{- $v := $root.Values -}}
{{- $flags := include "rehome.flags" $root | fromJson -}}
{{- $tls := include "rehome.tls" $root -}}
{{- if ne $tls "off" -}}
{{- $_ := set $env "REHOME_HTTP_TLS" $tls -}}
{{- if eq $tls "files" -}}
{{- $_ := set $env "REHOME_HTTP_CERT_FILE" ($flags.env.REHOME_HTTP_CERT_FILE | default "/etc/rehome/http/tls.crt") -}}
{{- $_ := set $env "REHOME_HTTP_KEY_FILE" ($flags.env.REHOME_HTTP_KEY_FILE | default "/etc/rehome/http/tls.key") -}}
{{- end -}}
{{- end -}}
{{- $offered := or (ne $tls "off") (and $v.requests.enabled (has $part (list "all" "api"))) -}}
{{- if and $offered (or $v.metrics.http2 (eq ($flags.env.REHOME_HTTP2 | default "false") "true")) -}}
{{- $_ := set $env "REHOME_HTTP2" "true" -}}
{{- end -}}
{{- if and $v.metrics.auth (has $part (list "all" "watcher" "actuator" "maintenance" "api")) -}}
{{- $_ := set $env "REHOME_HTTP_AUTH" "true" -}}
{{- if $v.metrics.profiles -}}{{- $_ := set $env "REHOME_PROFILES" "true" -}}{{- end -}}
{{- end -}}
{{- if and $v.requests.enabled (has $part (list "all" "api")) -}}
{{- $_ := set $env "REHOME_API_ADDRESS" (printf ":%v" $v.requests.port) -}}
{{- if eq $v.requests.tls "files" -}}
{{- $_ := set $env "REHOME_API_CERT_FILE" "/etc/rehome/requests/tls.crt" -}}
{{- $_ := set $env "REHOME_API_KEY_FILE" "/etc/rehome/requests/tls.key" -}}
{{- else -}}
{{- $_ := set $env "REHOME_API_TLS" $v.requests.tls -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Adds the settings for the bus: a list of root, component, and the settings. */}}
{{- define "rehome.natsEnv" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $env := index . 2 -}}
{{- $nats := $root.Values.nats -}}
{{- $own := printf "tls://%s.%s.svc:4222" (include "rehome.natsName" $root) (include "rehome.namespace" $root) -}}
{{- $_ := set $env "REHOME_NATS_URL" ($nats.url | default $own) -}}
{{- with $nats.prefix -}}{{- $_ := set $env "REHOME_BUS_PREFIX" . -}}{{- end -}}
{{- if eq $nats.login "nkey" -}}{{- $_ := set $env "REHOME_NATS_NKEY_FILE" "/etc/rehome/nats/nkey" -}}{{- end -}}
{{- if eq $nats.login "creds" -}}{{- $_ := set $env "REHOME_NATS_CREDS_FILE" "/etc/rehome/nats/creds" -}}{{- end -}}
{{- if $nats.ca -}}{{- $_ := set $env "REHOME_NATS_CA_FILE" "/etc/rehome/nats/ca.crt" -}}{{- end -}}
{{- if $nats.clientCertificate -}}
{{- $_ := set $env "REHOME_NATS_CERT_FILE" "/etc/rehome/nats/tls.crt" -}}
{{- $_ := set $env "REHOME_NATS_KEY_FILE" "/etc/rehome/nats/tls.key" -}}
{{- end -}}
{{- if has $part (list "all" "setup") -}}{{- $_ := set $env "REHOME_NATS_REPLICAS" (toString $nats.replicas) -}}{{- end -}}
{{- end }}

{{- define "rehome.leaseNamespace" -}}
{{- $election := .Values.leaderElection -}}
{{- $flags := include "rehome.flags" . | fromJson -}}
{{- $election.resourceNamespace | default $election.resourceNamescape | default $flags.env.REHOME_LEASE_NAMESPACE | default "kube-system" -}}
{{- end }}

{{/* A probe with the right port and scheme: a list of root and probe. */}}
{{- define "rehome.probe" -}}
{{- $root := index . 0 -}}
{{- $probe := deepCopy (index . 1) -}}
{{- if hasKey $probe "httpGet" -}}
{{- $_ := set $probe "httpGet" (merge (dict "port" "http" "scheme" (include "rehome.scheme" $root)) $probe.httpGet) -}}
{{- end -}}
{{- toYaml $probe -}}
{{- end }}

{{/* Volumes and mounts as JSON: a list of root and component. */}}
{{- define "rehome.volumes" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $v := $root.Values -}}
{{- $volumes := list -}}
{{- $mounts := list -}}
{{- if ne $part "functions" -}}
{{- $volumes = append $volumes (dict "name" "policy" "configMap" (dict "name" (printf "%s-policy" (include "rehome.fullname" $root)))) -}}
{{- $mounts = append $mounts (dict "name" "policy" "mountPath" "/etc/rehome/policy" "readOnly" true) -}}
{{- end -}}
{{- if and (eq $part "all") (not (include "rehome.external" $root)) -}}
{{- if $v.persistence.enabled -}}
{{- $claim := $v.persistence.existingClaim | default (include "rehome.fullname" $root) -}}
{{- $volumes = append $volumes (dict "name" "store" "persistentVolumeClaim" (dict "claimName" $claim)) -}}
{{- else -}}
{{- $volumes = append $volumes (dict "name" "store" "emptyDir" (dict "sizeLimit" $v.storeSizeLimit)) -}}
{{- end -}}
{{- $mounts = append $mounts (dict "name" "store" "mountPath" "/var/lib/rehome") -}}
{{- end -}}
{{- if and (ne $part "once") (include "rehome.external" $root) (or (ne $v.nats.login "none") $v.nats.ca $v.nats.clientCertificate) -}}
{{- $secret := include "rehome.natsSecret" (list $root (ternary "rehome" $part (eq $part "all"))) -}}
{{- $volumes = append $volumes (dict "name" "nats" "secret" (dict "secretName" $secret "defaultMode" 288)) -}}
{{- $mounts = append $mounts (dict "name" "nats" "mountPath" "/etc/rehome/nats" "readOnly" true) -}}
{{- end -}}
{{- if and $v.metrics.tlsSecret (not (has $part (list "once" "setup"))) -}}
{{- $volumes = append $volumes (dict "name" "http-tls" "secret" (dict "secretName" $v.metrics.tlsSecret "defaultMode" 288)) -}}
{{- $mounts = append $mounts (dict "name" "http-tls" "mountPath" "/etc/rehome/http" "readOnly" true) -}}
{{- end -}}
{{- if and $v.requests.enabled (eq $v.requests.tls "files") (has $part (list "all" "api")) -}}
{{- $volumes = append $volumes (dict "name" "requests-tls" "secret" (dict "secretName" $v.requests.tlsSecret "defaultMode" 288)) -}}
{{- $mounts = append $mounts (dict "name" "requests-tls" "mountPath" "/etc/rehome/requests" "readOnly" true) -}}
{{- end -}}
{{- if has $part (list "all" "watcher" "actuator" "maintenance" "api" "once" "setup") -}}
{{- $volumes = concat $volumes $v.extraServiceAccountVolumes -}}
{{- $mounts = concat $mounts $v.extraServiceAccountVolumeMounts -}}
{{- end -}}
{{- toJson (dict "volumes" $volumes "mounts" $mounts) -}}
{{- end }}

{{/* The arguments of the program as JSON: a list of root and component. */}}
{{- define "rehome.args" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- if eq $part "all" -}}
["run"]
{{- else if eq $part "setup" -}}
{{- toJson (list "setup" (printf "--timeout=%s" $root.Values.setup.timeout)) -}}
{{- else if eq $part "functions" -}}
{{- toJson (concat (list "functions") (include "rehome.answered" $root | fromJsonArray)) -}}
{{- else -}}
{{- toJson (list $part) -}}
{{- end -}}
{{- end }}

{{/* The pod spec of a part: a list of root and component. */}}
{{- define "rehome.podSpec" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $v := $root.Values -}}
{{- $rightful := has $part (list "all" "watcher" "actuator" "maintenance" "api" "once" "setup") -}}
{{- $serves := not (has $part (list "once" "setup")) -}}
{{- $volumes := include "rehome.volumes" (list $root $part) | fromJson -}}
serviceAccountName: {{ include "rehome.serviceAccount" (list $root (ternary "all" $part (eq $part "once"))) }}
automountServiceAccountToken: {{ and $rightful $v.automountServiceAccountToken }}
enableServiceLinks: false
{{- with $v.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with $v.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "rehome.priorityOf" $root }}
{{ . }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $v.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml $v.topologySpreadConstraints | nindent 0 }}
{{- else if $serves }}
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "rehome.selector" (list $root $part) | nindent 6 }}
{{- end }}
{{- with $v.tolerations }}
tolerations: {{- toYaml . | nindent 0 }}
{{- end }}
{{- with $v.dnsConfig }}
dnsConfig: {{- toYaml . | nindent 2 }}
{{- end }}
terminationGracePeriodSeconds: {{ $v.terminationGracePeriodSeconds }}
{{- if not $serves }}
restartPolicy: {{ ternary "Never" "OnFailure" (eq $part "once") }}
{{- end }}
{{- with $v.initContainers }}
initContainers: {{- toYaml . | nindent 0 }}
{{- end }}
containers:
- name: rehome
  image: {{ include "rehome.image" (list $root $v.image) | quote }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  {{- if and $v.command (ne (toJson $v.command) `["/bin/descheduler"]`) }}
  command: {{- toYaml $v.command | nindent 2 }}
  {{- end }}
  args: {{- include "rehome.args" (list $root $part) | fromJsonArray | toYaml | nindent 2 }}
  env: {{- include "rehome.env" (list $root $part) | fromJsonArray | toYaml | nindent 2 }}
  {{- if $serves }}
  ports: {{- include "rehome.containerPorts" (list $root $part) | fromJsonArray | toYaml | nindent 2 }}
  {{- with $v.livenessProbe }}
  livenessProbe: {{- include "rehome.probe" (list $root .) | nindent 4 }}
  {{- end }}
  {{- with $v.readinessProbe }}
  readinessProbe: {{- include "rehome.probe" (list $root .) | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- with include "rehome.resources" (list $root $part) | fromYaml }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.securityContext }}
  securityContext: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $volumes.mounts }}
  volumeMounts: {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $volumes.volumes }}
volumes: {{- toYaml . | nindent 0 }}
{{- end }}
{{- end }}

{{/* The ports of a part, as JSON: a list of root and component. */}}
{{- define "rehome.containerPorts" -}}
{{- $root := index . 0 -}}
{{- $v := $root.Values -}}
{{- $first := dict "name" "http" "containerPort" (include "rehome.port" $root | int) "protocol" "TCP" -}}
{{- $ports := list (mergeOverwrite (deepCopy ($v.ports | default (list dict) | first)) $first) -}}
{{- $ports = concat $ports ($v.ports | default list | rest) -}}
{{- if and $v.requests.enabled (has (index . 1) (list "all" "api")) -}}
{{- $ports = append $ports (dict "name" "requests" "containerPort" (int $v.requests.port) "protocol" "TCP") -}}
{{- end -}}
{{- toJson $ports -}}
{{- end }}
