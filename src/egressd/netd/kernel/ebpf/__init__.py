"""eBPF without a compiler: programs put together in Python, and handed to the kernel.

- `assembler`: instructions to the bytes that the kernel takes. Pure.
- `btf`: where the fields of the kernel's own structures are. Pure.
- `cgroup`: the root of the hierarchy that programs about sockets are attached to.
- `system`: bpf(2): maps, programs, and what the kernel tells of them.

A device has no compiler, and a program for one kernel does not fit another, since the
structures that it reads differ. So it is put together when netd starts, for the kernel that runs.
"""
