#!/usr/bin/env bash
# The demo of `make demo`: a traced run of a tiny hybrid model, reconciled with what was estimated.
# usage: tools/demo.sh [VENV]
set -euo pipefail
cd "$(dirname "$0")/.."

vstate="${1:-.venv}/bin/vstate"
run="build/demo-$(date -u +%Y%m%dT%H%M%SZ)-$$"

show() {
    printf '\n$ %s\n' "$*"
    "$@"
}

mkdir -p build
show "$vstate" trace run --model tiny/qwen3-next --workload smoke --out "$run"
show "$vstate" reconcile "$run" --fail-on undercount
