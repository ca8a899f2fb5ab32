"""The table of planted faults: what is changed, and who must notice."""

from planting import Change, Fault, fault

NOISE = "privacy/test_noise_as_charged.py::test_"
SAMPLING = "privacy/test_sampling_as_charged.py::test_"
BOUND = "privacy/test_bound_as_charged.py::test_"
STREAMS = "privacy/test_streams.py::test_"
LEDGER = "accounting/test_ledger.py::test_"
BOOK = "accounting/test_book.py::test_"
ONE_DRAW = "privacy/test_one_draw.py::test_"
GATE = "privacy/test_gate.py::test_"
SECRETS = "privacy/test_secrets.py::test_"
SCORES = "inference/test_scoring.py::test_"
CHAINS = "inference/test_hamiltonian.py::test_"
GUIDED = "inference/test_guided.py::test_"
FORMULA_SUMS = "inference/test_statistics_formula.py::test_"
SEEN = "test_audit_secrets.py::test_"
KEPT = "privacy/test_unfinished.py::test_"
DIGESTS = "privacy/test_digest.py::test_"
RESUMED = "interfaces/test_resume.py::test_"
STOPS = "accounting/test_stops.py::test_"
EARLY = "privacy/test_early_stop.py::test_"
STOPPED = "interfaces/test_stopped_fits.py::test_"
TABLES = "inference/test_tables.py::test_"
EXPLORED = "interfaces/test_explore.py::test_"
CHECKED = "interfaces/test_model_check.py::test_"
SYNTHETIC = "interfaces/test_synthesize.py::test_"
SUMS = "federated/test_sums.py::test_"
NUMERICAL = "accounting/test_numerical_error.py::test_"

_OF_NOISE = [
    fault(
        "noise divided by 1.1",
        "tacit.privacy.mechanisms:NoisySums.noise",
        "points, count = scale * self.clip",
        "points, count = scale / 1.1 * self.clip",
        NOISE + "variance_is_the_charged_one[all]",
        NOISE + "variance_is_the_charged_one[wide]",
    ),
    fault(
        "noise divided by 1.05",
        "tacit.privacy.mechanisms:NoisySums.noise",
        "points, count = scale * self.clip",
        "points, count = scale / 1.05 * self.clip",
        NOISE + "variance_is_the_charged_one[sampled]",
        NOISE + "law_is_that_of_rounded_noise[False-1.2]",
        BOUND + "noise_over_what_a_unit_moves_is_the_charged_multiplier",
    ),
    fault(
        "Laplace noise divided by 1.05",
        "tacit.privacy.mechanisms:NoisySums.noise",
        "points, count = scale * self.clip",
        "points, count = scale / (1.05 if self.laplace else 1) * self.clip",
        NOISE + "variance_is_the_charged_one[laplace]",
        NOISE + "law_is_that_of_rounded_noise[True-1.2]",
    ),
    fault(
        "draws of rounded normals 5% too small",
        "tacit.privacy.noise:_round_draws",
        "value *= -scale",
        "value *= -scale / 1.05",
        NOISE + "variance_is_the_charged_one[all]",
        NOISE + "a_trusted_server_s_noise",
    ),
    fault(
        "noise cut off instead of rounded",
        "tacit.privacy.noise:_round_draws",
        "return _apply_sign(whole, words)",
        "return _apply_sign(np.floor(whole + value), words)",
        NOISE + "law_is_that_of_rounded_noise[False-1.2]",
    ),
    fault(
        "noise without its tails",
        "tacit.privacy.noise:_round_draws",
        "value *= -scale",
        "value = np.minimum(-value, 3.3) * scale",
        NOISE + "law_is_that_of_rounded_noise[False-5.0]",
    ),
    fault(
        "no noise on the last coordinate beyond eight",
        "tacit.privacy.mechanisms:NoisySums.noise",
        "parts.append(drawn.reshape(inside, self.dimension))",
        "parts.append(drawn.reshape(inside, self.dimension) * (np.arange(self.dimension) < max(8, self.dimension - 1)))",
        NOISE + "variance_is_the_charged_one[all]",
    ),
    fault(
        "two coordinates share their noise",
        "tacit.privacy.mechanisms:NoisySums.noise",
        "parts.append(drawn.reshape(inside, self.dimension))",
        "parts.append(drawn.reshape(inside, self.dimension)[:, [1, *range(1, self.dimension)]])",
        NOISE + "noise_is_fresh_in_every_step_and_number[all]",
    ),
    fault(
        "all phases have the noise of the least",
        "tacit.privacy.mechanisms:NoisySums.noise",
        "points, count = scale * self.clip",
        "points, count = min(s for s, _ in self.phases) * self.clip",
        NOISE + "every_phase_of_a_schedule_has_its_own",
    ),
    fault(
        "phases in the wrong order",
        "tacit.privacy.mechanisms:NoisySums.noise",
        "for scale, length in self.phases:",
        "for (scale, _), (_, length) in zip(self.phases[::-1], self.phases):",
        NOISE + "every_phase_of_a_schedule_has_its_own",
    ),
    fault(
        "the same noise in every block",
        "tacit.privacy.gate:BlockRunner._draw",
        "mechanism.noise(bits.noise, start, steps)",
        "mechanism.noise(Randomness.from_key(bits.noise._key), start, steps)",
        NOISE + "noise_is_fresh_in_every_step_and_number[all]",
        STREAMS + "no_word_is_drawn_twice_in_a_run[5]",
    ),
    fault(
        "logistic noise of a test divided by 1.05",
        "tacit.privacy.mechanisms:BarkerTests.noise",
        "thresholds = standard_logistics(bits, steps)",
        "thresholds = standard_logistics(bits, steps) / 1.05",
        NOISE + "acceptance_has_the_charged_law[None]",
    ),
    fault(
        "Gaussian noise of a test divided by 1.05",
        "tacit.privacy.mechanisms:BarkerTests.noise",
        "* standard_normals(bits, steps)",
        "* standard_normals(bits, steps) / 1.05",
        NOISE + "acceptance_has_the_charged_law[2.0]",
    ),
    fault(
        "noise of a test on batches divided by 1.05",
        "tacit.privacy.mechanisms:SampledBarkerTests.noise",
        "standard_normals(bits, steps).view",
        "(standard_normals(bits, steps) / 1.05).view",
        NOISE + "acceptance_on_a_batch_has_the_charged_law",
    ),
    fault(
        "a trusted server adds 5% less",
        "tacit.privacy.distributed:add_server_noise",
        "rounded_normals(source, std,",
        "rounded_normals(source, std / 1.05,",
        NOISE + "a_trusted_server_s_noise",
    ),
]

_OF_SAMPLING = [
    fault(
        "sampling at 1.2 times the charged rate",
        "tacit.privacy.mechanisms:NoisySums.batches",
        "self.sampling_rate",
        "min(1.2 * self.sampling_rate, 1 - 1e-9)",
        SAMPLING + "rate_is_the_charged_one",
        SAMPLING + "several_gates_sample_each_for_itself",
    ),
    fault(
        "sampling at 1.05 times the charged rate",
        "tacit.privacy.mechanisms:NoisySums.batches",
        "self.sampling_rate",
        "min(1.05 * self.sampling_rate, 1 - 1e-9)",
        SAMPLING + "rate_is_the_charged_one",
    ),
    fault(
        "gaps to the next unit 5% too short",
        "tacit.privacy.noise:_geometric_gaps",
        "per_skip = -float(np.log1p(-rate))",
        "per_skip = -float(np.log1p(-1.05 * rate))",
        SAMPLING + "rate_is_the_charged_one",
    ),
    fault(
        "a unit is oftener in a batch than the others",
        "tacit.privacy.sampling:poisson_batches",
        "return Batches(indices, places < counts[:, None])",
        "indices[::9, 0] = 0; return Batches(indices, places < counts[:, None])",
        SAMPLING + "every_unit_has_the_same_rate",
    ),
    fault(
        "the same batches in every block",
        "tacit.privacy.gate:BlockRunner._batches",
        "self._mechanism.batches(self._bits.sampling, pop",
        "self._mechanism.batches(Randomness.from_key(self._bits.sampling._key), pop",
        SAMPLING + "steps_are_independent_at_any_distance",
        STREAMS + "no_word_is_drawn_twice_in_a_run[5]",
    ),
    fault(
        "a batch is used in two steps",
        "tacit.privacy.sampling:poisson_batches",
        "return Batches(indices, places < counts[:, None])",
        "indices[1::50], counts[1::50] = indices[::50], counts[::50]; return Batches(indices, places < counts[:, None])",
        SAMPLING + "steps_are_independent_at_any_distance",
    ),
    fault(
        "batches of a test larger than charged",
        "tacit.privacy.mechanisms:SampledBarkerTests.batches",
        "units, capacity, steps",
        "units, round(1.05 * capacity), steps",
        SAMPLING + "batches_of_a_test_have_the_charged_size[400-1000]",
        SAMPLING + "batches_of_a_test_have_the_charged_size[700-1000]",
    ),
    fault(
        "the same batch in every step of a test",
        "tacit.privacy.sampling:fixed_size_batches",
        "uniform_integers(bits, units, steps * size).astype(np.int32)",
        "np.tile(uniform_integers(bits, units, size).astype(np.int32), steps)",
        SAMPLING + "batches_of_a_test_are_fresh_and_hold_everybody_alike",
    ),
    fault(
        "shards dealt in a fixed order",
        "tacit.privacy.groups:random_shards",
        "drawn = uniform_integers(randomness, shards, rows._count)",
        "drawn = np.arange(rows._count) % shards",
        SAMPLING + "shards_are_dealt_by_chance",
    ),
    fault(
        "progress told of what runs at once",
        "tacit.privacy.gate:run",
        "progress(end)",
        "progress(first + block)",
        SAMPLING + "what_a_method_hears_follows_steps_and_not_rows",
    ),
    fault(
        "inputs asked for by what runs at once",
        "tacit.privacy.gate:run",
        "jax.tree.map(lambda leaf, here=here: leaf[here], given)",
        "inputs(start, steps)",
        SAMPLING + "what_a_method_hears_follows_steps_and_not_rows",
    ),
]

_OF_BOUNDS = [
    fault(
        "clipped at 1.05 times the bound",
        "tacit.privacy.clipping:_scale_and_truncate",
        "short = points * (1 - _ROUNDING_MARGIN",
        "short = 1.05 * points * (1 - _ROUNDING_MARGIN",
        BOUND + "a_unit_beyond_the_clip_moves_a_sum_by_the_clip[by rows-of_rows-False]",
        BOUND + "a_unit_beyond_the_clip_moves_a_sum_by_the_clip[by rows-of_rows-True]",
    ),
    fault(
        "clipped in the 2-norm where the 1-norm was charged",
        "tacit.privacy.clipping:clip_to_lattice_l1",
        "jnp.sum(jnp.abs(unit))",
        "jnp.sqrt(jnp.sum(unit * unit))",
        BOUND + "a_unit_beyond_the_clip_moves_a_sum_by_the_clip[by rows-of_rows-True]",
    ),
    fault(
        "a person may move a sum by a clip for each row",
        "tacit.privacy.mechanisms:_clipped_sums",
        "place(vector, given.clip, lattice.points))",
        "place(vector / 3, given.clip, lattice.points) * (1 if given.units.present.shape[1] == 1 else 3))",
        BOUND + "a_unit_beyond_the_clip_moves_a_sum_by_the_clip[by rows-of_people-False]",
        BOUND + "a_unit_beyond_the_clip_moves_a_sum_by_the_clip[by units-of_people-True]",
    ),
    fault(
        "a unit that counts in two pieces",
        "tacit.privacy.mechanisms:_in_pieces",
        "leaf[even:]",
        "leaf[even - 1 :]",
        "privacy/test_pieces.py::test_pieces_add_up_to_the_whole[65-1.0]",
        "privacy/test_pieces.py::test_a_test_in_pieces_decides_by_the_sum_of_all_units[False-1000]",
    ),
    fault(
        "ratios of a test clipped at 1.05 times the bound",
        "tacit.privacy.clipping:RatioLattice.most",
        "self.points - 8",
        "int(1.05 * self.points) - 8",
        BOUND + "a_unit_moves_the_log_odds_by_the_charged_bound[1-None]",
        BOUND + "a_unit_of_a_batch_counts_for_one_clip",
    ),
    fault(
        "ratios of a test on a finer grid than planned",
        "tacit.privacy.gate:clip_and_grid",
        "grid = clip / np.float32(mechanism.lattice.points)",
        "grid = np.float32(1.05) * clip / np.float32(mechanism.lattice.points)",
        BOUND + "a_unit_moves_the_log_odds_by_the_charged_bound[1-None]",
    ),
    fault(
        "bounds of chains doubled",
        "tacit.privacy.one_draw.chain:_clip_to_claim",
        "jnp.clip(values, -claim.bound, claim.bound)",
        "jnp.clip(values, -2 * claim.bound, 2 * claim.bound)",
        BOUND + "a_chain_hears_of_a_unit_no_more_than_was_charged[1000000.0-1]",
    ),
    fault(
        "bounds of chains 5% larger",
        "tacit.privacy.one_draw.chain:_clip_to_claim",
        "jnp.clip(values, -claim.bound, claim.bound)",
        "jnp.clip(values, -1.05 * claim.bound, 1.05 * claim.bound)",
        BOUND + "a_chain_hears_of_a_unit_no_more_than_was_charged[-1000000.0-4]",
    ),
    fault(
        "slopes of chains 5% larger",
        "tacit.privacy.one_draw.chain:_clip_to_claim",
        "far = claim.slope * claim.radius",
        "far = 1.05 * claim.slope * claim.radius",
        BOUND + "a_chain_hears_of_a_record_no_more_than_its_slope[1000000.0]",
    ),
    fault(
        "features of chains 5% longer than stated",
        "tacit.privacy.one_draw.chain:_shorten_column",
        "column, most = claim.shortened",
        "column, most = claim.shortened[0], 1.05 * claim.shortened[1]",
        BOUND + "a_chain_hears_of_features_as_long_as_stated[True]",
        BOUND + "a_chain_hears_of_features_as_long_as_stated[False]",
    ),
]

_OF_SYNTHETIC_TABLES = [
    fault(
        "synthetic tables that are not charged",
        "tacit.api.synthesize:SynthesisPlan.release",
        "ledger=ledger",
        "ledger=None",
        SYNTHETIC + "the_charge_is_that_of_the_release",
        SYNTHETIC + "more_than_is_left_is_refused",
    ),
    fault(
        "synthetic rows of people whose rows count",
        "tacit.api.synthesize:_check_drawing",
        "if release.count_rows:",
        "if False:",
        SYNTHETIC + "rows_of_people_are_no_units",
    ),
]
_OF_STREAMS = [
    fault(
        "one key for sampling and noise",
        "tacit.privacy.gate:Gate.__init__",
        'sampling, noise = chosen.child("sampling"), chosen.child("noise")',
        'sampling = chosen.child("sampling"); noise = Randomness.from_key(sampling._key)',
        STREAMS + "no_word_is_drawn_twice_in_a_run[None]",
        STREAMS + "no_word_is_drawn_twice_in_a_run[5]",
    ),
    fault(
        "a key of 16 bits from the system",
        "tacit.privacy.noise:Randomness.__init__",
        "os.urandom(32)",
        "hashlib.sha256(os.urandom(2)).digest()",
        STREAMS + "a_key_is_all_that_the_system_gives",
        STREAMS + "keys_from_the_system_do_not_repeat",
    ),
    fault(
        "half of a key is used",
        "tacit.privacy.noise:Randomness.__init__",
        "os.urandom(32)",
        "os.urandom(32)[:16] * 2",
        STREAMS + "a_key_is_all_that_the_system_gives",
    ),
    fault(
        "children of a stream are all the same",
        "tacit.privacy.noise:Randomness.child",
        'f"{self._children}:{label}"',
        'f"{label}"',
        STREAMS + "children_of_a_stream_are_all_different",
        STREAMS + "no_word_is_drawn_twice_by_several_gates[one]",
    ),
    fault(
        "a child of a seeded stream passes for private",
        "tacit.privacy.noise:Randomness.child",
        "child.seeded = self.seeded",
        "pass",
        STREAMS + "whatever_comes_from_a_seed_says_so",
    ),
    fault(
        "a copy in another process draws the same words",
        "tacit.privacy.noise:Randomness._refuse_forked",
        "os.getpid() != self._process",
        "False",
        GATE + "forked_randomness_is_refused",
    ),
    fault(
        "stages share their randomness",
        "tacit.privacy.gate:Gate.stages",
        'source.child(f"stage {i}")',
        "Randomness.from_key(source._key)",
        NOISE + "stages_have_noise_of_their_own",
        STREAMS + "no_word_is_drawn_twice_in_stages",
    ),
]

_OF_WORDS = [
    fault(
        "words of units follow from their places",
        "tacit.privacy.mechanisms:NoisySums.secret",
        "bits.words(steps * width)",
        "np.tile(np.arange(width, dtype=np.uint64), steps)",
        SEEN + "one_unit_more_shows_no_more_than_was_charged[1.0]",
        SECRETS + "words_are_each_unit_s_own_and_fresh[2097152-all rows]",
    ),
    fault(
        "words of units from a seed that everybody knows",
        "tacit.privacy.gate:Gate.__init__",
        'chosen.child("secret")',
        "Randomness(0)",
        SECRETS + "several_gates_have_words_of_their_own",
        SECRETS + "stages_and_runs_have_words_of_their_own",
    ),
    fault(
        "the same words in every step",
        "tacit.privacy.mechanisms:NoisySums.secret",
        "bits.words(steps * width)",
        "np.tile(bits.words(width), steps)",
        SECRETS + "words_are_each_unit_s_own_and_fresh[2097152-all rows]",
        SECRETS + "words_are_each_unit_s_own_and_fresh[2097152-batches of people]",
    ),
    fault(
        "the same words in every block",
        "tacit.privacy.gate:BlockRunner._draw",
        "mechanism.secret(bits.secret, steps",
        "mechanism.secret(Randomness.from_key(bits.secret._key), steps",
        SECRETS + "words_are_each_unit_s_own_and_fresh[5-all rows]",
        SECRETS + "words_are_each_unit_s_own_and_fresh[5-batches of rows]",
        STREAMS + "no_word_is_drawn_twice_where_units_have_secret_ones[0.3]",
    ),
    fault(
        "all units have the same words",
        "tacit.privacy.mechanisms:NoisySums.secret",
        "bits.words(steps * width)",
        "np.repeat(bits.words(steps), width)",
        SECRETS + "words_are_each_unit_s_own_and_fresh[2097152-all people]",
        SECRETS + "rows_that_are_fetched_from_a_disk_get_words_too",
    ),
    fault(
        "units beyond a few thousand share words with the first",
        "tacit.privacy.mechanisms:NoisySums.secret",
        "bits.words(steps * width)",
        "np.resize(bits.words(steps * min(width, 2**12)), steps * width)",
        SECRETS + "every_unit_of_many_has_words[1.0]",
    ),
    fault(
        "both words of a unit are one",
        "tacit.privacy.mechanisms:NoisySums.secret",
        "bits.words(steps * width)",
        "((bits.words(steps * width) >> np.uint64(32)) * np.uint64(2**32 + 1))",
        SECRETS + "words_are_each_unit_s_own_and_fresh[2097152-all rows]",
    ),
    fault(
        "words of units are those that noise is made of",
        "tacit.privacy.gate:Gate.__init__",
        'chosen.child("secret")',
        "Randomness.from_key(noise._key)",
        SECRETS + "words_tell_nothing_of_the_noise[63]",
        STREAMS + "no_word_is_drawn_twice_where_units_have_secret_ones[1.0]",
    ),
    fault(
        "words of units are those that batches are drawn by",
        "tacit.privacy.gate:Gate.__init__",
        'chosen.child("secret")',
        "Randomness.from_key(sampling._key)",
        STREAMS + "no_word_is_drawn_twice_where_units_have_secret_ones[0.3]",
    ),
    Fault(
        "words of units have no label",
        (
            Change(
                "tacit.privacy.trace:_Walk.__init__",
                "[jax.tree_util.keystr(path) for path, _ in named]",
                "[jax.tree_util.keystr(p) if p[0].name != 'secret' else None for p, _ in named]",
            ),
        ),
        tuple(
            f"{SECRETS}refused_before_anything_is_drawn[{step}]"
            for step in ("returns_words", "words_into_arguments", "branches_on_a_word")
        ),
    ),
    fault(
        "words of units may be left out or exchanged",
        "tacit.privacy.trace:_Walk._check_release",
        "if not same or list(given[public:]) != self.labels:",
        "if list(given[public:])[:1] != self.labels[:1]:",
        SECRETS + "refused_before_anything_is_drawn[exchanges_words]",
        SECRETS + "refused_before_anything_is_drawn[leaves_words_out]",
    ),
    fault(
        "a score and a curvature released one by one",
        "tacit.privacy.trace:check_trace",
        "walk.releases != 1",
        "walk.releases not in (1, 2)",
        SECRETS + "refused_before_anything_is_drawn[releases_twice]",
    ),
]

_OF_ACCOUNTS = [
    fault(
        "numerical error of the composition not charged",
        "tacit.accounting.pld:Composition._charge",
        "(body + noise)",
        "body",
        NUMERICAL + "any_error_of_the_stated_size_is_covered[sampled-0.001]",
        NUMERICAL + "worse_rounding_costs_more",
    ),
    fault(
        "rounding of transforms taken for none",
        "tacit.accounting.pld:Window.compose",
        "_FFT_ERROR * math.log2(self.bins)",
        "0.0",
        NUMERICAL + "worse_rounding_costs_more",
    ),
    fault(
        "no numerical error stated at all",
        "tacit.accounting.pld:Window.compose",
        "error = (\n",
        "error = 0 * (\n",
        NUMERICAL + "rounding_is_within_the_error_that_is_stated",
    ),
    fault(
        "losses above the window not charged",
        "tacit.accounting.pld:Window.compose",
        "+ math.exp(min(log_tail, 0.0))",
        "",
        NUMERICAL + "a_window_that_is_too_small_makes_the_bound_loose_not_wrong",
    ),
    fault(
        "tails of one release not rounded up",
        "tacit.accounting.pld:single_delta",
        "slack = 2 * TAIL_ERROR * (1 + abs(log_p))",
        "slack = 0.0",
        NUMERICAL + "tails_are_rounded_up",
    ),
    fault(
        "a step fewer charged than made",
        "tacit.privacy.mechanisms:NoisySums._event_until",
        "events.sampled_gaussian(list(counted), self.sampling_rate)",
        "events.sampled_gaussian([(s, n - 1) for s, n in self.phases], self.sampling_rate)",
        NOISE + "variance_is_the_charged_one[all]",
    ),
    fault(
        "a rate 5% lower charged than used",
        "tacit.privacy.mechanisms:NoisySums._event_until",
        "events.sampled_gaussian(list(counted), self.sampling_rate)",
        "events.sampled_gaussian(list(self.phases), self.sampling_rate / 1.05)",
        SAMPLING + "rate_is_the_charged_one",
    ),
    fault(
        "a ledger that does not wait for the disk",
        "tacit.accounting.ledger_store:sqlite_engine",
        "synchronous=EXTRA",
        "synchronous=OFF",
        "accounting/test_on_disk.py::test_every_transaction_waits_for_the_disk",
        "accounting/test_on_disk.py::test_a_charge_waits_for_the_disk",
    ),
    fault(
        "a statement that prints how many rows there are",
        "tacit.api.plan:Plan.statement",
        "    if gate.public_count:",
        '    public.append(f"{gate._private._fields and len(next(iter(gate._private._fields.values())))} rows")\n    if gate.public_count:',
        "results/test_no_count.py::test_statements_are_the_same_whatever_the_number[statistics]",
    ),
]

_OF_BOOKS = [
    fault(
        "a ledger that admits 5% more than its total",
        "tacit.accounting.budget:PrivacyFilter.admits",
        "-_ROUNDING_TOLERANCE * total.epsilon",
        "-0.05 * total.epsilon",
        LEDGER + "sums_add_up_to_the_total_and_no_further",
    ),
    fault(
        "a ledger that does not add up deltas",
        "tacit.accounting.budget:PrivacyFilter.admits",
        "subtract_decimals(total.delta, *spent.delta, budget.delta)",
        "subtract_decimals(total.delta, budget.delta)",
        LEDGER + "delta_runs_out_too",
    ),
    fault(
        "a ledger that takes a run's word for its cost",
        "tacit.accounting.accountants:cost",
        "if not (spent <= budget.epsilon) or",
        "if False or",
        LEDGER + "a_run_must_be_what_it_declares",
    ),
    fault(
        "5% less charged than a run costs",
        "tacit.accounting.accountants:cost",
        "round_up_epsilon(spent, budget.epsilon)",
        "round_up_epsilon(spent, budget.epsilon) / 1.05",
        LEDGER + "sums_add_up_to_the_total_and_no_further",
    ),
    fault(
        "a ledger that books the budget, and not what a run costs",
        "tacit.accounting.ledger:Ledger.prepare_charge",
        "accounting.accountants.cost(event, budget)",
        "budget",
        "interfaces/test_amounts.py::test_a_run_that_costs_less_is_charged_less",
    ),
    fault(
        "a book whose lines can be changed",
        "tacit.accounting.ledger_chain:create_tables",
        "for trigger in _APPEND_ONLY_TRIGGERS",
        "for trigger in ()",
        LEDGER + "lines_cannot_be_changed_or_taken_back",
    ),
    fault(
        "a book that takes negative charges",
        "tacit.accounting.ledger_chain:create_tables",
        "    _METADATA.create_all(connection)",
        "    free = sa.MetaData(); [table.to_metadata(free) for table in _METADATA.sorted_tables]; "
        "[c.constraints.clear() for t in free.sorted_tables for c in t.columns]; "
        "[t.constraints.discard(c) for t in free.sorted_tables for c in list(t.constraints) "
        "if isinstance(c, sa.CheckConstraint)]; "
        "free.create_all(connection)",
        BOOK + "lines_that_no_run_could_have_are_refused_by_the_file_itself",
    ),
    fault(
        "a chain of hashes that is not compared",
        "tacit.accounting.ledger_chain:check_lines",
        "connection.execute(stored).scalars().all() != [_line_digest(line) for line in lines]",
        "False",
        BOOK + "lines_that_were_changed_by_hand_are_noticed",
    ),
    fault(
        "an older copy of a book passes",
        "tacit.accounting.ledger_chain:MarkFile.check_not_older",
        "connection.execute(stored).scalar() != marked.hash",
        "False",
        BOOK + "an_older_copy_is_refused_also_while_it_is_in_use",
        BOOK + "a_book_that_lacks_its_last_lines_is_noticed",
    ),
    fault(
        "a lost book is opened anew",
        "tacit.accounting.ledger_chain:MarkFile.check_never_existed",
        "self.read() is not None",
        "False",
        BOOK + "a_book_that_is_gone_is_not_opened_anew",
    ),
    fault(
        "keys of noise stay in the file",
        "tacit.accounting.ledger_store:sqlite_engine",
        "secure_delete=ON",
        "secure_delete=OFF",
        BOOK + "keys_of_noise_do_not_stay_in_the_file",
    ),
]

_OF_UNITS = [
    fault(
        "people without an identifier are one person",
        "tacit.privacy.rows:group_by_person",
        'order = order[ids[order] != b""]',
        "pass",
        "privacy/test_rows.py::test_arrays_of_any_kind_say_who_is_unknown",
    ),
    fault(
        "a person's rows are two units",
        "tacit.privacy.rows:group_by_person",
        "first[1:] = ids[order[1:]] != ids[order[:-1]]",
        "first[1:] = np.arange(len(order))[1:] % 2 == 0",
        "privacy/test_rows.py::test_people_are_those_of_a_schema",
    ),
    fault(
        "more rows of a person than declared",
        "tacit.privacy.rows:group_by_person",
        "kept = place < most",
        "most = most + 1; kept = place < most",
        GATE + "rows_beyond_the_declared_number_are_left_out",
    ),
    fault(
        "a gate runs twice",
        "tacit.privacy.gate:Gate._use_up",
        "if not self._use.acquire(blocking=False):",
        "if False:",
        GATE + "a_gate_is_good_for_one_run",
        GATE + "a_copy_of_a_gate_is_not_another_gate",
        GATE + "of_many_threads_one_uses_a_gate",
    ),
    fault(
        "a gate with anybody's mechanism",
        "tacit.privacy.gate:Gate.__init__",
        "type(mechanism) not in self._mechanisms or not self._is_fixed(mechanism)",
        "False",
        "privacy/test_accessors.py::test_a_gate_takes_no_plan_of_anybody_elses_making",
    ),
    fault(
        "a gate with a mechanism that can change",
        "tacit.privacy.gate:Gate.__init__",
        "not self._is_fixed(mechanism)",
        "False",
        "privacy/test_accessors.py::test_a_plan_does_not_change_once_it_is_charged",
    ),
    fault(
        "a step that makes two releases",
        "tacit.privacy.trace:check_trace",
        "walk.releases != 1",
        "walk.releases < 1",
        GATE + "refused_before_anything_is_read[twice]",
    ),
    fault(
        "what is computed from rows has no label",
        "tacit.privacy.trace:_Walk.through",
        "touched = any(each is not None for each in given)",
        "touched = _ROWS_LABEL in given",
        GATE + "refused_before_anything_is_read[returns_rows]",
    ),
    fault(
        "a step that returns rows",
        "tacit.privacy.trace:check_trace",
        "any(label is not None for label in out)",
        "False",
        GATE + "refused_before_anything_is_read[returns_rows]",
    ),
]

_OF_DRAWS = [
    fault(
        "draws from a grid in which a unit says 5% more",
        "tacit.privacy.one_draw.exact:draw_from_grid",
        "mechanism.span / _SPAN_STEPS * ROUNDING_FACTOR",
        "1.05 * mechanism.span / _SPAN_STEPS",
        ONE_DRAW + "the_bound_is_reached",
    ),
    fault(
        "a unit's score clamped 5% later",
        "tacit.privacy.one_draw.exact:clamped_scores",
        "low, high = -_SPAN_STEPS, 0",
        "low, high = -int(1.05 * _SPAN_STEPS), 0",
        ONE_DRAW + "the_bound_is_reached",
    ),
    fault(
        "draws by a sum in which a row says 5% more",
        "tacit.privacy.one_draw.exact:draw_by_statistic",
        "factor = mechanism.power * ROUNDING_FACTOR",
        "factor = mechanism.power * 1.05",
        ONE_DRAW + "a_row_moves_a_sum_by_its_bound_at_most[1.0]",
    ),
    fault(
        "a column that is not clamped",
        "tacit.privacy.one_draw.exact:_sufficient_statistic",
        "np.clip(np.rint(np.where(real, share, 0.0) * mechanism.steps), 0, mechanism.steps)",
        "np.rint(np.where(real, (values - mechanism.low) / (mechanism.high - mechanism.low), 0.0) * mechanism.steps)",
        ONE_DRAW + "a_row_moves_a_sum_by_its_bound_at_most[40.0]",
    ),
    fault(
        "rows of a logistic regression 5% longer",
        "tacit.privacy.one_draw.logistic:_signed_rows",
        "longest = mechanism.radius * ROUNDING_FACTOR",
        "longest = 1.05 * mechanism.radius",
        BOUND + "rows_of_a_logistic_regression_are_as_long_as_charged",
    ),
    fault(
        "an answer told truly 5% too often",
        "tacit.papers.response:randomised_response",
        'bernoulli(source.child("coins"), chance,',
        'bernoulli(source.child("coins"), chance / 1.05,',
        "privacy/test_response.py::test_the_ratio_is_what_is_charged[0.5-2]",
    ),
    fault(
        "coins that are not exact",
        "tacit.privacy.noise:bernoulli",
        "    if rest:",
        "    if False:",
        "privacy/test_response.py::test_coins_are_exact",
    ),
    fault(
        "whole numbers that favour some",
        "tacit.privacy.noise:uniform_integers",
        "words.max(initial=0) > last",
        "False",
        "privacy/test_noise.py::test_whole_numbers_do_not_favour_any",
    ),
    fault(
        "doubtful draws decided by doubles",
        "tacit.privacy.noise:_round_draws",
        "np.abs(value) >= 0.5 - doubt",
        "np.abs(value) > 1.0",
        "privacy/test_noise.py::test_exact_decision_at_a_boundary",
    ),
]

_OF_EDGES = [
    fault(
        "operations in which units meet",
        "tacit.privacy.trace:is_per_unit",
        "return _is_listed(equation, PER_UNIT_PRIMITIVES) and not foreign",
        "return _is_listed(equation, PUBLIC_PRIMITIVES)",
        GATE + "refused_before_anything_is_read[keys_of_rows]",
        GATE + "refused_before_anything_is_read[goes_on_for_all]",
    ),
    fault(
        "random keys of any kind",
        "tacit.privacy.trace:_is_foreign_key",
        "dtype != _threefry_dtype()",
        "False",
        "privacy/test_contamination.py::test_keys_other_than_threefrys_are_refused_wherever_they_come_from",
    ),
    fault(
        "an operation that borrows a name",
        "tacit.privacy.trace:_is_listed",
        "equation.primitive in _jax_primitives(names)",
        "equation.primitive.name in names",
        "privacy/test_contamination.py::test_an_operation_that_borrows_a_name_is_refused",
    ),
    fault(
        "records left out are no units",
        "tacit.privacy.rows:Rows.from_encoded",
        'Units.single_rows(columns), "row", left_out)',
        'Units.single_rows(columns), "row", 0)',
        "inference/test_missing_records.py::test_a_missing_cell_moves_a_draw_by_epsilon_at_most",
    ),
    fault(
        "identifiers read from floats that were rounded",
        "tacit.data.cells:is_inexact",
        "2.0**bits",
        "2.0 ** (bits + 9)",
        "data/test_encode.py::test_an_identifier_that_may_be_several_is_nobodys",
    ),
    fault(
        "an error that repeats a table's text",
        "tacit.data.sources:_looks_like_path",
        " and plain and path.suffix.lower() in endings",
        "",
        "data/test_echoes.py::test_text_where_a_path_belongs_is_not_repeated",
    ),
    fault(
        "a site that tells the server of its files",
        "tacit.federated.guard:error_reply",
        "if isinstance(error, Refused):",
        "if True:",
        "federated/test_flower.py::test_the_server_hears_of_no_file_and_no_budget_of_a_site",
    ),
    fault(
        "programs of a gate are stored",
        "tacit.privacy.gate:_set_compilation_cache",
        "last is None or None in _cache_requests.values()",
        "last is None",
        "privacy/test_settings.py::test_nowhere_holds_while_anybody_says_so",
    ),
    fault(
        "identifiers of floats are read",
        "tacit.data.people:People.codes",
        "if cells.rounded:",
        "if False:",
        "data/test_encode.py::test_a_record_without_an_identifier_takes_nobody_along",
    ),
    fault(
        "programs that anybody may read",
        "tacit.federated.deploy:_make_private",
        "stat.S_IMODE(found.st_mode) != 0o700",
        "False",
        "federated/test_compiled.py::test_the_folder_is_for_its_owner_and_an_open_one_is_mended",
    ),
    fault(
        "a scaler before rows that are said to be raw",
        "tacit.api.sklearn:steps_before",
        "found = changing + found",
        "pass",
        "interfaces/test_sklearn.py::test_a_pipeline_is_fitted_only_if_somebody_answers_for_its_steps",
    ),
    fault(
        "a statement that is silent on what was done before",
        "tacit.api.sklearn:PrivateBayes._store",
        "declared=_DECLARATION.format(before=before, seen=seen)",
        'declared=""',
        "interfaces/test_sklearn.py::test_every_statement_says_that_steps_before_are_not_covered",
    ),
]

# The gate clips whatever a unit adds. The first of these would be clipped there, and bias the fit.
_OF_SCORES = [
    fault(
        "curvature of drawn outcomes without a bound",
        "tacit.inference.score_contributions:contribution_of_scores",
        "few / jnp.maximum(lengths[1 : 1 + _CURVATURE_OUTCOMES], given.curvature_clip)[:, None]",
        "few / given.curvature_clip",
        SCORES + "no_unit_adds_more_than_the_clip_whatever_it_holds[linear-5]",
        SCORES + "no_question_makes_a_unit_add_more[0.0]",
    ),
    fault(
        "slopes without a bound",
        "tacit.inference.score_contributions:contribution_of_scores",
        "jnp.clip(products.sum(axis=-1), 0.0, given.max_slope)",
        "products.sum(axis=-1)",
        SCORES + "no_unit_adds_more_than_the_clip_whatever_it_holds[linear-5]",
    ),
    fault(
        "slopes of weighted units that are bounded before they are divided by the weight",
        "tacit.inference.score_contributions:contribution_of_scores",
        "given.max_slope).mean() / given.max_slope",
        "given.max_slope).mean() / given.max_slope / (1.0 if weight is None else jnp.maximum(weight, 1e-6))",
        "models/test_weights_and_missing.py::test_no_weight_makes_a_unit_add_more",
    ),
    fault(
        "slopes by direction without a bound",
        "tacit.inference.score_contributions:contribution_of_scores",
        "each / jnp.maximum(jnp.linalg.norm(each), given.max_direction_slope)",
        "each / given.max_direction_slope",
        SCORES + "no_unit_adds_more_than_the_clip_whatever_it_holds[linear-5]",
    ),
    fault(
        "sizes of scores that are each as long as the clip",
        "tacit.inference.score_contributions:contribution_of_scores",
        ".mean(axis=0) / math.sqrt(size)",
        ".mean(axis=0)",
        SCORES + "no_unit_adds_more_than_the_clip_whatever_it_holds[linear-5]",
        SCORES + "no_question_makes_a_unit_add_more[1.0]",
    ),
    fault(
        "a score that is centred after its clip, and not clipped again",
        "tacit.inference.score_contributions:clip_exchangeably",
        "return kept * xp.minimum(1.0, clip / xp.maximum(longest, 1e-12)), centred",
        "return kept, centred",
        SCORES + "no_unit_adds_more_than_the_clip_whatever_it_holds[linear-5]",
    ),
    fault(
        "the own outcome clipped alone, and drawn ones not",
        "tacit.inference.score_contributions:clip_exchangeably",
        "kept = kept - kept.mean(axis=-2, keepdims=True)",
        "kept = kept - centred.mean(axis=-2, keepdims=True)",
        SCORES + "at_the_truth_clipped_scores_have_mean_zero[poisson]",
    ),
    fault(
        "entries half the size apart that count as if they came once",
        "tacit.inference.score_contributions:_packing_weight",
        "apart == 0 or 2 * apart == size",
        "apart == 0",
        SCORES + "packed_curvature_is_the_matrix[4]",
    ),
    fault(
        "shares that add up to more than one",
        "tacit.inference.scoring_rounds:Rounds.ask",
        "shares=np.sqrt(shares)",
        "shares=np.sqrt(shares) ** 0.9",
        SCORES + "rounds_need_no_rows",
    ),
    fault(
        "a count that noise may make negative",
        "tacit.inference.scoring_rounds:Rounds.tell",
        "self.units = max(sums.units, MIN_UNITS)",
        "self.units = sums.units",
        SCORES + "a_count_below_zero_is_none",
    ),
    fault(
        "curvature that is noise, at its word",
        "tacit.inference.scoring_rounds:Rounds._drawn_slopes",
        "level = max(self._level(estimate), _mean_diagonal(estimate.mean))",
        "level = self._level(estimate)",
        SCORES + "rows_too_few_for_the_budget_leave_the_prior",
    ),
    fault(
        "a scale that is far too large counts as converged",
        "tacit.inference.scoring_posterior:_convergence",
        "if less > _MAX_UNDERDISPERSION or 1 - less < _DISPERSION_SIGNIFICANCE * noise:",
        "if less > 0:",
        SCORES + "a_fit_that_has_not_arrived_says_so",
    ),
    fault(
        "simulated rows that are the rows",
        "tacit.api.rows:encode_rows",
        "rows.simulated = simulated_units(schema, names, may_be_missing)",
        "rows.simulated = rows._host_fields()",
        SCORES + "simulated_rows_follow_from_the_schema_alone",
    ),
    fault(
        "people of the table's rows among simulated ones",
        "tacit.api.rows:encode_rows",
        "rows.simulated = simulated_units(schema, names, may_be_missing)",
        "rows.simulated = simulated_units(schema, names, may_be_missing)._replace(present=rows._host_fields().present)",
        SCORES + "simulated_rows_follow_from_the_schema_alone",
    ),
]

_OF_UPDATES = [
    fault(
        "an update that gets rows",
        "tacit.privacy.gate:run",
        "seen = jax.tree.map(lambda leaf: leaf[0], outputs[-1])",
        'seen = (np.asarray(gate._private._fields["x"][0, 0], np.float32))',
        GATE + "an_update_is_given_what_was_released_and_nothing_else",
    ),
    fault(
        "an update of the sums without noise",
        "tacit.privacy.gate:run",
        "seen = jax.tree.map(lambda leaf: leaf[0], outputs[-1])",
        'seen = (np.asarray(gate._private._fields["x"].sum(axis=(0, 1)), np.float32))',
        GATE + "an_update_is_given_what_was_released_and_nothing_else",
    ),
    fault(
        "a step that goes on from its own state beside an update",
        "tacit.privacy.gate:run",
        "state = session.share(_follow(",
        "_ = session.share(_follow(",
        GATE + "steps_that_an_update_drives_are_those_that_drive_themselves",
        GATE + "the_state_that_a_step_returns_is_not_used_beside_an_update",
    ),
    fault(
        "a run that goes on without what its update remembered",
        "tacit.privacy.gate:run",
        "_follow(gate, number + 1, seen, state, update, asked)",
        "pass",
        KEPT + "steps_that_an_update_drives_go_on_bit_for_bit[True]",
    ),
    fault(
        "processes that each go their own way",
        "tacit.privacy.distributed:DistributedSession.share",
        "held = self._processes.broadcast(pack_arrays([np.asarray(leaf) for leaf in leaves]))",
        "held = pack_arrays([np.asarray(leaf) for leaf in leaves])",
        "privacy/test_parts.py::test_all_processes_go_where_the_first_one_says",
    ),
]

_OF_KEPT_RUNS = [
    fault(
        "a run that goes on with its first words again",
        "tacit.privacy.checkpoint:CheckpointedSession.start",
        "stream.skip_to(drawn)",
        "stream.skip_to(0)",
        KEPT + "a_gate_goes_on_bit_for_bit[sampled-True]",
        KEPT + "no_word_is_drawn_twice_by_a_run_that_goes_on",
    ),
    fault(
        "a stream that goes on a word too early",
        "tacit.privacy.noise:Randomness.skip_to",
        "self._stream.update(bytes(rest))",
        "self._stream.update(bytes(0))",
        KEPT + "a_stream_goes_on_where_it_was[7]",
    ),
    fault(
        "a run that goes on with other rows",
        "tacit.privacy.checkpoint:Checkpoint.check_same",
        "if not hmac.compare_digest(",
        "if False and not hmac.compare_digest(",
        KEPT + "other_rows_are_refused[a value]",
        RESUMED + "what_was_begun_otherwise_is_refused[changes0-other data]",
    ),
    fault(
        "a run that goes on with another question",
        "tacit.privacy.checkpoint:Checkpoint.state",
        "found.question != question",
        "False",
        KEPT + "another_question_is_refused",
    ),
    fault(
        "keys that are removed, and not overwritten",
        "tacit._files:overwrite_with_zeros",
        "bytes(os.fstat(keys.fileno()).st_size)",
        'b""',
        KEPT + "a_finished_run_destroys_its_keys",
    ),
    fault(
        "a run that returns what it could not store",
        "tacit.privacy.checkpoint:Checkpoint.store",
        "if last:",
        "if False:",
        KEPT + "a_disk_that_is_full_for_a_while_costs_nothing",
    ),
    fault(
        "a digest without the arrays inside a function",
        "tacit.privacy.checkpoint:trace_digest",
        "(*trace_arrays(traced), *jax.tree.leaves(arguments))",
        "(*traced.consts, *jax.tree.leaves(arguments))",
        DIGESTS + "an_array_counts_wherever_it_is[in_jit]",
    ),
    fault(
        "a digest without rules for derivatives",
        "tacit.privacy.checkpoint:density_digest",
        "for each in (back, forth, along(back), along(forth)):",
        "for each in ():",
        DIGESTS + "an_array_counts_wherever_it_is[in_jvp_rule]",
        KEPT + "another_draw_is_refused[chain-first3-second3]",
    ),
    fault(
        "a charge before the question is stored",
        "tacit.privacy.checkpoint:CheckpointedSession.ask",
        "if self._run.state(self._gate, self._question) is None:",
        "if self._charge is None and self._run.state(self._gate, self._question) is None:",
        KEPT + "the_question_is_on_disk_before_the_charge",
    ),
    fault(
        "a second posterior for one charge",
        "tacit.api.resume:ResumableRun._release",
        "if first != digest:",
        "if False:",
        RESUMED + "one_posterior_leaves_for_a_charge",
        STOPPED + "a_copy_that_would_say_another_count_says_nothing",
    ),
    fault(
        "a ledger that records what leaves last",
        "tacit.accounting.ledger:Ledger.finish",
        "return first or digest",
        "return digest",
        LEDGER + "one_result_leaves_for_a_charge",
    ),
    fault(
        "a run that is recognised by the end of its label",
        "tacit.accounting.ledger:Ledger.receipt",
        "charge.run_id == run_id",
        "(charge.run_id == run_id or charge.label.endswith(run_id))",
        LEDGER + "a_run_is_not_recognised_by_what_users_write",
    ),
    fault(
        "a run that goes on with another number of threads",
        "tacit.api.resume:_fingerprint",
        "str(num_threads())",
        '"1"',
        RESUMED + "another_number_of_threads_is_refused",
    ),
    fault(
        "a run that goes on and is charged again",
        "tacit.api.resume:ResumableRun.charge_once",
        "receipt = self._find_receipt()",
        "receipt = None; self._stored._states.clear(); self._stored.name += os.urandom(2).hex()",
        RESUMED + "a_killed_fit_goes_on_bit_for_bit_for_one_charge[after the charge]",
    ),
]

_OF_CHAINS = [
    fault(
        "rounds of a schedule counted once",
        "tacit.privacy.mechanisms:NoisySums._counted",
        "total[scale] = total.get(scale, 0) + here",
        "total[scale] = here",
        CHAINS + "alternating_noise_costs_the_same_in_any_order",
    ),
    fault(
        "noise of a trajectory 5% less than calibrated",
        "tacit.inference.hamiltonian:Hamiltonian._releases",
        "tuple((noise, steps // self.num_steps)",
        "tuple((noise / 1.05, steps // self.num_steps)",
        CHAINS + "the_cost_is_the_published_one[0]",
        CHAINS + "the_cost_is_the_published_one[4]",
    ),
    fault(
        "gradients have another share of the noise than was asked for",
        "tacit.inference.hamiltonian:Hamiltonian._multipliers",
        "self.num_steps * self.releases_per_draw / self.gradient_share",
        "self.num_steps * self.num_leapfrog / self.gradient_share / 1.3",
        CHAINS + "gradients_and_ratios_have_their_shares",
    ),
    fault(
        "a log ratio without a bound",
        "tacit.inference.hamiltonian:_unit_contribution",
        "last = to_ratio * jnp.clip(ratio, -length, length)",
        "last = to_ratio * ratio",
        CHAINS + "no_unit_is_longer_than_one",
    ),
    fault(
        "a gradient without a bound",
        "tacit.inference.hamiltonian:_unit_contribution",
        "jnp.minimum(1.0, clip / norm)",
        "1.0",
        CHAINS + "no_unit_is_longer_than_one",
    ),
    fault(
        "no penalty for the noise of a log ratio",
        "tacit.inference.hamiltonian:trajectory_step",
        "penalty = 0.5 * (bounds.noise * length) ** 2",
        "penalty = 0.0 * length",
        CHAINS + "noise_in_the_test_does_not_change_the_posterior[penalty]",
    ),
    fault(
        "remainders that noise hides count in full",
        "tacit.inference.chains:remainder_gradient",
        "of(away) - hidden @ reference.turn",
        "of(away)",
        GUIDED + "the_slope_beyond_the_approximation_is_the_gradient_of_what_is_beyond",
    ),
    fault(
        "tests weigh remainders in full that noise hides",
        "tacit.inference.chains:remainder_ratio",
        "change(*offsets) - change(*hidden)",
        "change(*offsets)",
        GUIDED + "a_ratio_is_that_of_what_expansions_to_second_order_leave",
    ),
    fault(
        "a bound of a formula's statistics that rows exceed",
        "tacit.models.glm_statistics:LinearStatistics.statistic_norm_bound",
        "parts * (parts + 1) / 2 - left_out",
        "parts * (parts + 1) / 4 - left_out",
        FORMULA_SUMS + "statistics_are_products_within_their_bound[y ~ age + bmi + ward + sex]",
    ),
]

_OF_STOPS = [
    fault(
        "a stop that gives delta back",
        "tacit.accounting.ledger_chain:read_past_costs",
        "CHARGES.c.delta",
        "sa.case((_HAS_STOPPED, 0.0), else_=CHARGES.c.delta)",
        STOPS + "a_run_counts_in_full_until_it_is_known_to_have_stopped",
    ),
    fault(
        "two outcomes with a delta each",
        "tacit.accounting.accountants:stopping_costs",
        "budget.delta * _STOPPED_DELTA_SHARE",
        "budget.delta",
        STOPS + "both_outcomes_fit_into_one_delta",
    ),
    fault(
        "no delta kept for a stop",
        "tacit.accounting.accountants:stopping_costs",
        "cost(event, unstopped_budget(budget))",
        "cost(event, budget)",
        STOPS + "a_run_that_leaves_no_delta_for_its_stop_is_refused",
    ),
    fault(
        "a run that may stop counts as if it had",
        "tacit.accounting.ledger_chain:_counted",
        "_HAS_STOPPED",
        'CHARGES.c[f"stopped_{column}"].is_not(None)',
        STOPS + "a_run_counts_in_full_until_it_is_known_to_have_stopped",
        STOPPED + "a_fit_that_goes_on_is_charged_and_stated_in_full",
    ),
    fault(
        "any run counts less that says it has stopped",
        "tacit.accounting.ledger_chain:write_finish",
        "if stopped:",
        "if False:",
        STOPS + "only_a_run_that_was_charged_as_one_can_stop",
    ),
    fault(
        "steps after a stop",
        "tacit.privacy.gate:run",
        "if gate.stopped:",
        "if False:",
        EARLY + "what_is_executed_until_a_stop_is_what_is_charged_then",
        STOPPED + "a_table_that_cannot_be_read_costs_its_count[False-sum]",
    ),
    fault(
        "a run that went beyond its count counts as stopped when it goes on",
        "tacit.privacy.gate:run",
        "stop if number + 1 == done else None",
        "stop",
        EARLY + "a_run_that_went_on_cannot_stop_later",
    ),
    fault(
        "a stop a step later than charged",
        "tacit.privacy.gate:_follow",
        "number == gate.mechanism.stop_after",
        "number == gate.mechanism.stop_after + 1",
        EARLY + "what_is_executed_until_a_stop_is_what_is_charged_then",
        STOPPED + "a_table_that_cannot_be_read_costs_its_count[True-sum]",
    ),
    fault(
        "a stop charged for its first step only",
        "tacit.privacy.mechanisms:NoisySums.stopped_event",
        "self._event_until(self.stop_after)",
        "self._event_until(1)",
        EARLY + "what_is_executed_until_a_stop_is_what_is_charged_then",
        EARLY + "the_event_of_a_stop_is_that_of_the_first_steps",
    ),
    fault(
        "a count that leaves before it is stored",
        "tacit.privacy.checkpoint:CheckpointedSession.store",
        "last = gate.stopped or position.steps",
        "last = position.steps",
        EARLY + "a_stop_is_on_disk_before_it_is_known_and_nothing_is_drawn_again",
    ),
    fault(
        "a run that went on counts as stopped",
        "tacit.api.resume:Run.recorded_stop",
        "if not gate.stopped:",
        "if False:",
        STOPPED + "a_method_that_says_so_after_its_last_step_is_charged_in_full",
    ),
    fault(
        "a stop that is not recorded",
        "tacit.api.resume:Run._stop",
        "if self._ledger is not None:",
        "if False:",
        STOPPED + "a_table_that_cannot_be_read_costs_its_count[False-sum]",
    ),
    fault(
        "a fit that stopped begins anew",
        "tacit.api.resume:check_not_stopped",
        "(folder / STOPPED_FILE).exists()",
        "False",
        STOPPED + "a_stopped_fit_that_was_killed_has_one_charge_one_count_and_one_end",
    ),
]

_OF_TABLES = [
    fault(
        "rows of a person count in full",
        "tacit.inference.tables:contribution",
        "jnp.maximum(number, 1)",
        "1",
        TABLES + "no_unit_adds_more_than_one_whatever_its_rows_hold[people]",
        TABLES + "counts_without_noise_are_those_of_pandas[people]",
    ),
    fault(
        "rows that count each are not divided by the most that a person may have",
        "tacit.inference.tables:contribution",
        "jnp.where(every_row, question.most_rows, jnp",
        "jnp.where(every_row, 1, jnp",
        TABLES + "no_unit_adds_more_than_one_whatever_its_rows_hold[rows of people]",
    ),
    fault(
        "places without a row count",
        "tacit.inference.tables:contribution",
        "share = present /",
        "share = jnp.ones(len(present)) /",
        TABLES + "no_unit_adds_more_than_one_whatever_its_rows_hold[people]",
        TABLES + "counts_without_noise_are_those_of_pandas[rows of people]",
    ),
    fault(
        "weights of tables a tenth too long",
        "tacit.inference.tables:TableRelease.weights",
        "np.sqrt(root / total)",
        "np.sqrt(1.2 * root / total)",
        TABLES + "no_unit_adds_more_than_one_whatever_its_rows_hold[rows]",
    ),
    fault(
        "the number of rows or people left out of the length",
        "tacit.inference.tables:TableRelease.weights",
        "total += float(roots[part].sum())",
        "total += 0.0",
        TABLES + "no_unit_adds_more_than_one_whatever_its_rows_hold[people]",
    ),
    fault(
        "distances from the middles of bins without a bound",
        "tacit.inference.tables:Lookup.answers",
        "jnp.clip((scaled - middles[0][cell]) / middles[1], -1, 1)",
        "(scaled - middles[0][cell]) / middles[1]",
        TABLES + "no_unit_adds_more_than_one_whatever_its_rows_hold[rows]",
    ),
    fault(
        "a clip that cuts long vectors off",
        "tacit.inference.tables:TableRelease.calibrate",
        "+ self.dimension * _CLIP_MARGIN_EACH",
        "",
        TABLES + "the_clip_cuts_nothing_off[True]",
    ),
    fault(
        "tables charged after their release",
        "tacit.api.release:run_release",
        """\
        receipt = ledger.charge(mechanism.event, budget, label=label)
        statement = replace(statement, budget_before=receipt.before, budget_left=receipt.left)
    try:
        return release.run(gate), statement
""",
        """\
        check_ledger(ledger, [budget], [rows])
    try:
        found = release.run(gate)
        if ledger is not None:
            receipt = ledger.charge(mechanism.event, budget, label=label)
            statement = replace(statement, budget_before=receipt.before, budget_left=receipt.left)
        return found, statement
""",
        EXPLORED + "the_ledger_is_charged_before_rows_are_asked",
        EXPLORED + "ctrl_c_leaves_the_charge",
    ),
    fault(
        "a ledger charged for half the tables' epsilon",
        "tacit.api.release:run_release",
        "ledger.charge(mechanism.event, budget, label=label)",
        "ledger.charge(replace(mechanism, noise_multiplier=2 * mechanism.noise_multiplier).event, budget, label=label)",
        EXPLORED + "the_ledger_is_charged_before_rows_are_asked",
    ),
    fault(
        "a person counts once for every row",
        "tacit.api.explore:build_release",
        'count == "rows" and most_rows > 1',
        "most_rows > 1",
        EXPLORED + "people_count_once",
    ),
]

_OF_SUMS_OF_SITES = [
    fault(
        "noise forgotten at sites that do not share it",
        "tacit.federated.sums:SummedAnswers.with_noise",
        "noise / math.sqrt(honest) if self.split else noise",
        "noise / math.sqrt(honest) if self.split else 0.0",
        SUMS + "what_each_site_sends_has_the_noise_that_it_was_charged_for[method0]",
    ),
    fault(
        "shares of noise too small by a root of the number of sites",
        "tacit.federated.sums:SummedAnswers.with_noise",
        "noise / math.sqrt(honest) if self.split",
        "noise / honest if self.split",
        SUMS + "what_each_site_sends_has_the_noise_that_it_was_charged_for[method1]",
        SUMS + "what_is_charged_is_what_is_executed_and_within_the_budget[method1]",
    ),
    fault(
        "noise for half of what a row moves",
        "tacit.federated.sums:SummedAnswers.with_noise",
        "noise_multiplier=noise / math.sqrt(honest) if self.split else noise",
        "noise_multiplier=(noise / math.sqrt(honest) if self.split else noise) / 2",
        SUMS + "what_each_site_sends_has_the_noise_that_it_was_charged_for[method0]",
        SUMS + "what_each_site_sends_has_the_noise_that_it_was_charged_for[method1]",
        SUMS + "what_is_charged_is_what_is_executed_and_within_the_budget[method0]",
    ),
    fault(
        "dishonest sites counted on for noise",
        "tacit.federated.sums:SummedAnswers.with_noise",
        "setting.together - self.dishonest - self.dropouts",
        "setting.together - self.dropouts",
        SUMS + "what_each_site_sends_has_the_noise_that_it_was_charged_for[method2]",
    ),
    fault(
        "sites that may leave counted on for noise",
        "tacit.federated.sums:SummedAnswers.with_noise",
        "setting.together - self.dishonest - self.dropouts",
        "setting.together - self.dishonest",
        SUMS + "what_is_charged_is_what_is_executed_and_within_the_budget[method2]",
    ),
    fault(
        "spare answers that are not charged",
        "tacit.federated.sums:SummedAnswers.setting",
        "answers=self.num_rounds + self.spare_answers",
        "answers=self.num_rounds",
        SUMS + "what_is_charged_is_what_is_executed_and_within_the_budget[method2]",
    ),
    fault(
        "a site charged after its answer",
        "tacit.federated.site:Client.answer",
        """\
        answer = self._journal.admit(self.terms, new)
    if answer.reply is None:
        answer = self._compute(task, answer)
""",
        """\
        change = self.work.change(
            self._rows, task.posterior, state.factor, Randomness.from_key(new.key)
        )
        self._journal.admit(self.terms, new)
        reply = self._journal.finish(task.run, new.digest, pack_arrays(change))
        answer = Answer(new.round, new.digest, new.key, new.state, reply)
    if answer.reply is None:
        answer = self._compute(task, answer)
""",
        SUMS + "a_site_is_charged_before_its_rows_are_asked",
    ),
    fault(
        "answers of a seed repeated as private ones",
        "tacit.federated.method:prepare_site",
        'about if seed is None else f"{about}, seed {seed}"',
        "about",
        SUMS + "an_answer_with_a_seed_is_never_taken_for_a_private_one[5-None]",
    ),
    fault(
        "a site pays for whatever a server sends in the place of the question",
        "tacit.federated.sums:EmptyTask.is_proper",
        "not vector.any()",
        "len(vector) == 1",
        SUMS + "a_server_can_ask_nothing_but_the_question_of_the_study[changes0]",
    ),
    fault(
        "sites charged for a run that one of them cannot pay",
        "tacit.federated.method:run_in_process",
        "site.check_charge()",
        "_ = site",
        SUMS + "if_one_site_cannot_pay_nobody_does",
    ),
    fault(
        "intervals with the noise of one site",
        "tacit.api.federated_release:release_result",
        "math.sqrt(sum(found.costs[name].noise_std ** 2 for name in server.members))",
        "max(found.costs[name].noise_std for name in server.members)",
        SUMS
        + "the_total_is_the_sum_over_all_rows_with_the_noise_that_is_declared[method0-1.7320508075688772]",
        SUMS + "sites_may_have_budgets_of_their_own",
    ),
]

_OF_CHECKS = [
    fault(
        "a check's noise is for a shorter vector",
        "tacit.inference.model_checks:CheckRelease.clip",
        "(1 + _CLIP_MARGIN)",
        "(1 - 0.1)",
        CHECKED + "no_unit_is_longer_than_the_clip",
    ),
    fault(
        "scores of a check that are not bounded",
        "tacit.inference.model_checks:unit_vector",
        "jnp.maximum(jnp.linalg.norm(score), 1.0)",
        "1.0",
        CHECKED + "no_unit_is_longer_than_the_clip",
    ),
    fault(
        "rows of a person that are added up in a check",
        "tacit.inference.model_checks:unit_vector",
        "share = usable / jnp.maximum(usable.sum(), 1)",
        "share = usable * 1.0",
        CHECKED + "no_unit_is_longer_than_the_clip",
    ),
    fault(
        "rows that are scored and fitted",
        "tacit.privacy.rows:Rows.split",
        "(~own, ~coins[self._count :])",
        "(own | True, ~coins[self._count :])",
        CHECKED + "a_split_deals_every_unit_to_one_part_by_its_own_coin",
    ),
    fault(
        "a split by position",
        "tacit.privacy.rows:Rows.split",
        "own = coins[: self._count]",
        "own = np.arange(self._count) < share * self._count",
        CHECKED + "a_split_deals_every_unit_to_one_part_by_its_own_coin",
    ),
    fault(
        "a score with less noise than the fits beside it",
        "tacit.api.score:gaussian_noise",
        "1 / math.sqrt(precision)",
        "0.9 / math.sqrt(precision)",
        CHECKED + "the_score_of_a_comparison_costs_what_its_fits_do",
    ),
    fault(
        "a score beside fits that are sampled, which is not charged",
        "tacit.api.score:plan_compare",
        "if not parallel:",
        "if False:",
        CHECKED + "fits_that_are_no_gaussian_sums_and_the_score_add_up",
    ),
]

_OF_PAPERS = [
    fault(
        "a probit of the wrong slope",
        "tacit.results.predictive:_reduce",
        "math.pi * variance / 8",
        "variance / 8",
        "interfaces/test_plan.py::test_probit_predictions_of_a_wide_posterior_are_integrals_over_it",
    ),
    fault(
        "a probit that forgets the spread of draws",
        "tacit.results.predictive:_reduce",
        "math.pi * variance / 8",
        "0 * variance",
        "interfaces/test_plan.py::test_probit_predictions_of_a_wide_posterior_are_integrals_over_it",
    ),
    fault(
        "released precisions are not cut off at zero",
        "tacit.federated.schemes:_FlooredStatistics.change",
        'if self.floor == "statistic":',
        "if False:",
        "federated/test_schemes.py::test_floors_of_statistics_and_of_factors_are_those_of_the_report[0]",
    ),
    fault(
        "factors are cut off before they are damped",
        "tacit.federated.schemes:_FlooredStatistics.change",
        "-factor[nonnegative] / self.damping",
        "-factor[nonnegative]",
        "federated/test_schemes.py::test_floors_of_statistics_and_of_factors_are_those_of_the_report[0]",
    ),
]

FAULTS = [
    *_OF_NOISE,
    *_OF_SAMPLING,
    *_OF_BOUNDS,
    *_OF_STREAMS,
    *_OF_WORDS,
    *_OF_ACCOUNTS,
    *_OF_BOOKS,
    *_OF_UNITS,
    *_OF_DRAWS,
    *_OF_EDGES,
    *_OF_SCORES,
    *_OF_UPDATES,
    *_OF_KEPT_RUNS,
    *_OF_CHAINS,
    *_OF_STOPS,
    *_OF_TABLES,
    *_OF_SUMS_OF_SITES,
    *_OF_CHECKS,
    *_OF_PAPERS,
    *_OF_SYNTHETIC_TABLES,
]
# Run always: one of each kind, and no longer than a few seconds.
QUICK = {
    "draws of rounded normals 5% too small",
    "no noise on the last coordinate beyond eight",
    "sampling at 1.05 times the charged rate",
    "shards dealt in a fixed order",
    "bounds of chains 5% larger",
    "one key for sampling and noise",
    "a key of 16 bits from the system",
    "words of units are those that noise is made of",
    "numerical error of the composition not charged",
    "a ledger that does not wait for the disk",
    "a book that takes negative charges",
    "a stream that goes on a word too early",
    "rounds of a schedule counted once",
    "two outcomes with a delta each",
}
