# Thin names for the jobs of dev.py, which works alone where there is no make.
#
#   make test ARGS="-k chain -x"     make sim SEEDS=1000     make sim SEED=42 [SCENARIO=groups]
#   make setup PYTHON=python3.13

PYTHON ?= python3
ARGS ?=
SEEDS ?= 200
SEED ?=
SCENARIO ?=

.PHONY: help setup demo test test-long check sim bench clean
.NOTPARALLEL:

help:
	@$(PYTHON) dev.py --help

setup demo test check bench clean:
	@$(PYTHON) dev.py $@ $(ARGS)

sim:
	@$(PYTHON) dev.py sim $(if $(SEED),--seed $(SEED),--seeds $(SEEDS)) $(if $(SCENARIO),--scenario $(SCENARIO)) $(ARGS)

test-long:
	@$(PYTHON) dev.py test -m long $(ARGS)
