#!/bin/sh
# Checks a Promela model exhaustively, or until the first error.
#
#   run_model.sh [--faulty] <model.pml> [-D<macro>[=<value>]...]
#
# Runs in the current directory, where spin leaves the verifier that it
# generates. Spin's own verdict, "errors: n", is on stdout; the exit code is 0
# also for a model with errors. (spin -run gives macros to the C compiler, not
# to the model: hence this script.)
#
# --faulty: the error is found soon, so that compiling without optimisation is
# faster.
set -eu

optimise=-O2
if [ "$1" = --faulty ]; then
  optimise=-O0
  shift
fi
model="$1"
shift

spin -a "$@" "$model"
"${CC:-cc}" "$optimise" -w -DSAFETY -DCOLLAPSE -DVECTORSZ=8192 -o pan pan.c
exec ./pan -m200000 -w22
