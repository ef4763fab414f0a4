"""Helpers of the tests of more than one folder. Those of one folder's tests are beside them.

Networks and devices:

- `netns`: namespaces with nothing in them, and functions that run there.
- `device`: rules, nodes and processes of a lab's device.
- `leaks`: clients that flood during an event, and a judge over every upstream.
- `shaping`: a router with speed limits between clients and a server.
- `crowd`: many clients of one namespace at the same time.
- `fast_path`: the kernel's view of the fast path.
- `known_flows`: what the fast path counts, read where there is no pytest.
- `use_cases`, `netd_double`, `drafts`: a device without a kernel. `api_device` serves its API.
- `stand_ins`: netd's ports, without anything behind them.

Nodes, and other input:

- `nodes`: configurations (`configs`), texts to import (`corpora`), the engine's instances of nodes
  (`instances`), and real servers (`served`, `upgrading`).
- `random_edits`: a state that changes at random. `random_operator` makes changes of a device, and
  undoes them.
- `hostile_text`: pieces that break generated text unless they are refused or quoted.
- `findings`: shortcomings of a machine.
- `configurations`: ten configurations of a device, for the golden files.

Programs and machines:

- `programs`: small programs that run in namespaces; clients and servers, each with one odd habit.
- `engine`: the engine's workers, documents for them, and their descriptors.
- `mail`: a mail server in a lab's internet.
- `tracing`, `disks`: processes whose system calls fail, file systems that are full.
- `needs`: checks that the machine has what a test needs.
- `packages`: Debian packages of egressd, and roots of the releases that they are tried on.
- `box`, `installed`: a Debian machine with a package of egressd in it, emulated or in namespaces.
- `kernel_state`: what egressd changes in a kernel, before its start and after its removal.
- `scripts`: the programs in script/ and packaging/, as modules.

Readers of what egressd writes:

- `daemon_files`: files of a line's daemons, read as the daemons read them.
- `disassembly`: eBPF programs as text.
- `newest_schema`: the statements that make the newest schema.
- `nft_reference`: the reference of the nftables tables.
- `documents`: the project's documents.
"""

from pathlib import Path

try:
    import pytest
except ImportError:
    pass  # a machine with nothing but a package of egressd, which runs `known_flows`
else:
    # Before any of them is imported, so that a failed assertion in them shows its values.
    pytest.register_assert_rewrite(
        *(f"{__name__}.{path.stem}" for path in Path(__file__).parent.glob("[!_]*"))
    )
