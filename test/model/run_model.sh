#!/bin/sh
# Checks a Promela model exhaustively, or until the first error.
#
#   run_model.sh [--faulty] [--compact] <model.pml> [-D<macro>[=<value>]...]
#
# Runs in the current directory, where spin leaves the verifier that it
# generates. Spin's own verdict, "errors: n", is on stdout; the exit code is 0
# also for a model with errors. (spin -run gives macros to the C compiler, not
# to the model: hence this script.)
#
# --faulty: the error is found soon, so that compiling without optimisation is
# faster.
# --compact: of each state only a hash of 64 bits and more is kept (spin's HC4),
# for models with large states. Two states with the same hash would be taken for
# one: of a million, with a probability far below one in a million.
#
# MODEL_FLAGS in the environment goes to the C compiler, behind the rest: say
# "-DMEMLIM=8000", or "-UHC4 -DCOLLAPSE" to keep all states where --compact does
# not. MODEL_HASH is the binary logarithm of the size of the hash table (22), to
# be larger for runs with more than ten million states.
set -eu

optimise=-O1
store=-DCOLLAPSE
if [ "$1" = --faulty ]; then
  optimise=-O0
  shift
fi
if [ "$1" = --compact ]; then
  store=-DHC4
  shift
fi
model="$1"
shift

spin -a "$@" "$model"
"${CC:-cc}" "$optimise" -w -DSAFETY "$store" -DVECTORSZ=8192 \
  ${MODEL_FLAGS:-} -o pan pan.c
exec ./pan -m200000 "-w${MODEL_HASH:-22}"
