#!/usr/bin/env bash
# Build a release of the present commit into dist/: sdist, wheel, bill of materials (CycloneDX), checksums.
#
#   deploy/release.sh PYTHON PACKAGES
#
# PYTHON has the extra "bench", PACKAGES is the folder of wheels that `make tools` has fetched: a build needs no network. Two
# builds of a commit have the same bytes. The bill names the packages of an installation with the extras of the image.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 packages=$2

if [[ -n $(git status --porcelain) ]]; then
  echo "release: a release is built from a commit; commit or remove:" >&2
  git status --short >&2
  exit 1
fi
if ! compgen -G "$packages/*.whl" >/dev/null; then
  echo "release: there are no packages in $packages; run 'make tools'" >&2
  exit 1
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf dist
environment=$(mktemp --directory) source=$(mktemp --directory)
trap 'rm -rf "$environment" "$source"' EXIT
# The commit, not the folder: the build would take in files that git ignores by settings outside of the repository.
git archive HEAD | tar --extract --directory "$source"
python=$(command -v "$python")
[[ $python == /* ]] || python=$PWD/$python
(cd "$source" && "$python" -m hatchling build --directory "$OLDPWD/dist")

version=$("$python" -m hatchling version)
"$python" -m venv --without-pip "$environment"
"$python" -m pip --python "$environment/bin/python" install --quiet --disable-pip-version-check --no-index --no-compile \
  --find-links dist --find-links "$packages" --constraint constraints.txt "streamdedup[registry,serve]==$version"
"$python" -m cyclonedx_py environment --output-reproducible --pyproject pyproject.toml \
  --output-file "dist/streamdedup-$version.cdx.json" "$environment/bin/python"
(cd dist && sha256sum -- * >SHA256SUMS && cat SHA256SUMS)
