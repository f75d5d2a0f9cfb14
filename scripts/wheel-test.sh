#!/bin/bash
# Installs the wheel in a fresh virtual environment, and runs its tests, the notebook's among them: scripts/wheel-test.sh.
# SEEKLESS_REQUIRE=schedulers installs Ray as well, for the recipes of docs/guide/sweeps.md, and lets none of them be skipped.
set -eu -o pipefail
cd "$(dirname "$0")/.."

wheel=$(ls "$PWD"/target/wheels/seekless-*.whl)
venv=$PWD/target/python/venv
project=$PWD

rm -rf "$venv"
python3 -m venv "$venv"
# First alone: the module needs nothing.
"$venv/bin/pip" install --quiet --no-index "$wheel"
cd / # The folder python/ has a package of the same name.
"$venv/bin/seekless" --version
"$venv/bin/python" -c 'import seekless; print(seekless.bench("smallfile", on="lfs / disk:dec-rz26", files=100))'

case ,${SEEKLESS_REQUIRE:-}, in *,schedulers,* | *,all,*) extras=test,schedulers ;; *) extras=test ;; esac
"$venv/bin/pip" install --quiet "$wheel[$extras]"
PATH=$venv/bin:$PATH "$venv/bin/python" -m pytest --rootdir "$project/python" -p no:cacheprovider -q "$project/python/tests"

# What was installed goes away again.
"$venv/bin/pip" uninstall --quiet --yes seekless
[ ! -e "$venv/bin/seekless" ] && ! find "$venv/share/seekless" -type f 2>/dev/null | grep .
