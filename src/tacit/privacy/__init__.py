"""The boundary: the only code that may turn rows into anything that leaves.

Read beside PROOFS.md, whose labels in square brackets stand in the code where the line they speak of is. The
boundary itself is seven modules, in this order:

- `noise`: cryptographic randomness, and exact draws of noise from it;
- `rows`: private data as units of privacy;
- `clipping`: the bound on one unit's contribution, as integers on a public lattice;
- `sampling`: which units a step looks at;
- `mechanisms`: what is charged, and the releases that do it, each with its formal guarantees;
- `trace`: the proof, by its trace, that a step lets rows leave through its release only;
- `gate`: the one object that reads rows.

Around it: `captured` (a search for data that a function holds), `checkpoint` (runs that can be resumed),
`distributed` (rows over several processes, noise of several sites), `groups` (larger units), `unclipped` (sums without
privacy, for comparison), and `one_draw` (draws from a posterior that are private by themselves).
"""
