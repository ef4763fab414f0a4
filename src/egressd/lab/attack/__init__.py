"""Attacks: hostile hosts, strangers and users on every way in, and bystanders who must not notice.

``script/attack --minutes N`` runs it in a lab of its own. Each way in has a hand, a process in a
namespace that goes on trying things at random (`egressd.lab.attack.hands`); all of them together
have one processor core. It ends at the first breach: a packet of an attacker's that gets out,
something that a hand may not do and did, a bystander whose request failed, a process whose memory
goes on growing. It stands on `lab` and imports of other rooms no more than `lab` does.
"""
