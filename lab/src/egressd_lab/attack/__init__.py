"""Attacks: hostile hosts, strangers and users on every way in, and bystanders who must not notice.

``script/attack --minutes N`` runs it in a lab of its own. Each way in has a hand: a process in a
namespace that keeps trying things at random (`egressd_lab.attack.hands`). All hands together have
one processor core. The run ends at the first breach: an attacker's packet that gets out, a
forbidden action of a hand that succeeded, a bystander's request that failed, or a process whose
memory keeps growing. It stands on `lab` and imports no more of other rooms than `lab` does.
"""
