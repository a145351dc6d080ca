#!/bin/sh
# Builds and publishes a release, signed and with provenance. `make release` runs it. See docs/releasing.md.
#
#	hack/release.sh VERSION REGISTRY
#
# SNAPSHOT=1      keep the archives in .build/release, and publish only to the registry
# COSIGN_ARGS     arguments for cosign, such as --key FILE; without them, cosign uses the identity of the workflow
# BUILDER         the URL of the workflow, for the provenance
set -eu

version=$1 registry=$2
export VERSION="$version" COSIGN_ARGS="${COSIGN_ARGS:-}" INDEX_TOKEN="${INDEX_TOKEN:-}" SYFT_CHECK_FOR_APP_UPDATE=false
REVISION=$(git rev-parse HEAD) CREATED=$(git log -1 --format=%ct) CREATED_AT=$(git log -1 --format=%cI)
export REVISION CREATED CREATED_AT
work=.build/release-work
rm -rf $work
mkdir -p $work

# The section of the changelog, without its title.
awk -v title="## ${version#v}" 'index($0, "## ") == 1 { on = index($0 " ", title " ") == 1; next } on' CHANGELOG.md > $work/notes.md
test -s $work/notes.md || test -n "${SNAPSHOT:-}" || { echo "CHANGELOG.md has no section ${version#v}" >&2; exit 1; }

# The provenance says how the artifacts were built. Their signatures vouch for it.
cat > $work/provenance.json <<EOF
{
  "buildDefinition": {
    "buildType": "https://github.com/rehome-dev/rehome/blob/main/docs/releasing.md",
    "externalParameters": {"version": "$version", "registry": "$registry"},
    "internalParameters": {"go": "$(go env GOVERSION)"},
    "resolvedDependencies": [{"uri": "git+https://github.com/rehome-dev/rehome", "digest": {"gitCommit": "$REVISION"}}]
  },
  "runDetails": {
    "builder": {"id": "${BUILDER:-https://github.com/rehome-dev/rehome/blob/main/docs/releasing.md#snapshots}"},
    "metadata": {"startedOn": "$(date -u +%Y-%m-%dT%H:%M:%SZ)"}
  }
}
EOF

# sign REFERENCE signs what the registry has under the digest, and attaches the provenance.
sign() {
  # COSIGN_ARGS are several words.
  # shellcheck disable=SC2086
  cosign sign --yes $COSIGN_ARGS "$1"
  # shellcheck disable=SC2086
  cosign attest --yes $COSIGN_ARGS --type slsaprovenance1 --predicate $work/provenance.json "$1"
}

echo "== archives"
goreleaser release --clean --release-notes $work/notes.md ${SNAPSHOT:+--snapshot}

echo "== image"
image=$registry/rehome
make --silent images IMAGES=$work IMAGE="$image" VERSION="$version" REVISION="$REVISION" CREATED="$CREATED" PUSH=1 > $work/digests
cat $work/digests
index=$(awk '$2 == "index" { print $3 }' $work/digests)
sign "$image@$index"
awk '$2 ~ "^linux/" { print $2, $3 }' $work/digests | while read -r platform digest; do
  file=$work/rehome-$version-$(echo "$platform" | tr / -)
  syft "docker-archive:$file.tar" --output "spdx-json=$file.spdx.json"
  # shellcheck disable=SC2086
  cosign attest --yes $COSIGN_ARGS --type spdxjson --predicate "$file.spdx.json" "$image@$digest"
done

echo "== charts"
for chart in rehome rehome-crds; do
  cp -R deploy/helm/$chart $work/$chart
done
# The chart of a release names the image by its digest.
sed -i.bak -E "/^image:/,/^  pullPolicy:/ { s#^  repository: [^ ]*#  repository: $image#; s#^  digest: \"\"#  digest: $index# }" $work/rehome/values.yaml
sed -i.bak "s#image: ghcr.io/rehome-dev/rehome:.*#image: $image@$index#" $work/rehome/Chart.yaml
rm $work/rehome/*.bak
for chart in rehome rehome-crds; do
  helm package $work/$chart --version "${version#v}" --app-version "${version#v}" --destination $work
  case $registry in
    127.0.0.1:* | localhost:*) plain=--plain-http ;;
    *) plain= ;;
  esac
  helm push $plain "$work/$chart-${version#v}.tgz" "oci://$registry/charts" > $work/pushed 2>&1 || { cat $work/pushed; exit 1; }
  cat $work/pushed
  sign "$registry/charts/$chart@$(awk '$1 == "Digest:" { print $2 }' $work/pushed)"
done
