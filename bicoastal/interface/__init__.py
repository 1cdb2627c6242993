"""What `import bicoastal` offers to scripts, notebooks and the command line, where no other room has it already.

`bicoastal/public.py` lists every public name and the module that defines it.
"""
