"""Proofs of the answers in the bank: one module per topic, one function per question, of the same name.

A proof takes nothing (an estimate takes ``seed``), runs in about a second, asserts each technical statement
of its answer, and returns the values which the answer's ``{placeholders}`` take. Its body is shown to
learners as a cell, so it reads like one: plain PyTorch or the course's instruments, comments that say why.
"""
