#!/usr/bin/python3 -I
"""The solver cvc5 as a program, of its library: SMT-LIB at its input, answers at its output.

Options are not read: what reads here sets all of its own by commands.
"""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "library"))
import cvc5


def commands(lines):
    """Each command as its text: up to where every bracket that opens is closed."""
    text, depth, within = "", 0, None
    for line in lines:
        for at, one in enumerate(line):
            if within:
                within = None if one == within else within
            elif one in '"|':
                within = one
            elif one == ";":
                line = line[:at] + "\n"
                break
            else:
                depth += (one == "(") - (one == ")")
        text += line
        if depth == 0 and not within and text.strip():
            yield text
            text = ""


def answer(text):
    """What the solver says to one command."""
    parser = cvc5.InputParser(solver, names)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "input")
    while not (command := parser.nextCommand()).isNull():
        yield command.invoke(solver, names)


def new():
    """A solver that has heard nothing, and the names that it is told."""
    solver = cvc5.Solver(cvc5.TermManager())
    return solver, cvc5.SymbolManager(solver)


solver, names = new()
for text in commands(sys.stdin):
    if text.strip() == "(reset)":
        solver, names = new()
        continue
    try:
        for said in answer(text):
            sys.stdout.write(said)
    except Exception as error:
        words = str(error).replace('"', "'").replace("\n", " ")
        sys.stdout.write(f'(error "{words}")\n')
    sys.stdout.flush()
