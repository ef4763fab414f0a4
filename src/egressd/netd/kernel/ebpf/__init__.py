"""eBPF without a compiler: programs assembled in Python and loaded into the kernel.

- `assembler`: instructions to the kernel's byte code. Pure.
- `btf`: the offsets of fields in the kernel's own structures. Pure.
- `cgroup`: the root of the hierarchy that programs about sockets are attached to.
- `system`: bpf(2): maps, programs, and the kernel's information about them.

A device has no compiler, and a program for one kernel does not fit another, since the structures
that it reads differ. So netd assembles it at its start, for the running kernel.
"""
