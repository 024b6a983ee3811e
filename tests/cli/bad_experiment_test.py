"""Experiment files and corpora that can't be used are refused at once."""


from program import ProgramTest, PASS, TINY

FILES = TINY.replace("vocab_size = 11", "vocab_size = 256").replace(
    'source = "synthetic"\nsequence_length = 19\nnoise_levels = 4\n'
    'tokens = 4000\n',
    'source = "files"\nsequence_length = 19\npaths = ["text"]\n')
TOKENS = TINY.replace(
    'source = "synthetic"\nsequence_length = 19\nnoise_levels = 4\n'
    'tokens = 4000\n',
    'source = "tokens"\nsequence_length = 19\npaths = ["tokens.bin"]\n')


class BadExperiment(ProgramTest):
    def assert_verify_refuses(self, file, *words, settings=()):
        result = self.run_isoloss(
            "verify", file, "--out", "out",
            *(f"--set={setting}" for setting in settings))

        self.assert_refused(result, *words)
        self.assert_no_files("out")

    def test_a_file_that_is_no_experiment(self):
        (self.folder / "bytes.toml").write_bytes(b"\x89HDF\r\n\x1a\n\xff\x00")
        self.write("syntax.toml", 'name = "x"\n[model\n')
        for file, words in (("missing.toml", ["No such file"]),
                            (".", ["Is a directory"]),
                            ("/dev/null", ["pipe or device"]),
                            ("bytes.toml", ["bytes.toml:1"]),
                            ("syntax.toml", ["syntax.toml:2"])):
            with self.subTest(file=file):
                self.assert_verify_refuses(file, file, *words)

    def test_an_unknown_key_names_its_line_and_the_nearest_key(self):
        lines = TINY.splitlines()
        line = lines.index("warmup_steps = 4") + 1
        self.write("typo.toml", TINY.replace("warmup_steps", "warmup_step"))

        self.assert_verify_refuses(
            "typo.toml", f"typo.toml:{line}:", "unknown key",
            "train.warmup_step", "Did you mean `warmup_steps`?")

    def test_unknown_names_come_with_the_known_ones(self):
        for setting, words in (
                ("arms.mxfp8.recipe=mxfp8_rcel", ["fp32", "`mxfp8_rceil`?"]),
                ("model.preset=dsv3-nan", ["dsv3-small", "`dsv3-nano`?"]),
                ("data.source=file", ["synthetic", "`files`?"]),
                ("trian.steps=3", ["unknown key", "`train`?"]),
                ("train.setps=3", ["unknown key", "`steps`?"])):
            with self.subTest(setting=setting):
                self.assert_verify_refuses(
                    "tiny.toml", f"--set {setting}", *words, settings=[setting])

    def test_sizes_out_of_range(self):
        for setting in ("model.dim=-5", "model.dim=1e99",
                        "model.dim=9999999999",
                        "model.n_layers=1000000", "train.steps=0",
                        "train.steps=-1", "train.steps=99999999999999999999",
                        "train.steps=\"many\"", "train.lr=nan", "train.lr=-1",
                        "train.lr=inf", "train.seeds=[]", "train.seeds=[1,1]",
                        "train.seeds=[-1]", "data.sequence_length=0",
                        "data.held_out_share=1", "parallel.workers=-1",
                        "parallel.workers=100000", "log.eval_every=0"):
            with self.subTest(setting=setting):
                key = setting.split("=")[0]
                self.assert_verify_refuses(
                    "tiny.toml", f"--set {setting}", f"`{key}`", "must be",
                    settings=[setting])

    def test_sizes_that_no_machine_holds(self):
        self.assert_verify_refuses(
            "tiny.toml", "tiny.toml", "TiB", "Lower",
            settings=["model.dim=1048576", "model.vocab_size=1048576"])

    def test_dims_that_break_a_rule_of_the_model(self):
        for settings, words in (
                (["model.n_heads=0"], ["`model.n_heads` is 0"]),
                (["model.dim=0"], ["`model.dim` is 0"]),
                (["model.kv_lora_rank=0"], ["`model.kv_lora_rank` is 0"]),
                (["model.qk_rope_head_dim=3"], ["`model.qk_rope_head_dim` is 3"]),
                (["model.n_dense_layers=3"], ["n_dense_layers` is 3", "2"]),
                (["model.top_k=0"], ["top_k` is 0"]),
                (["model.top_k=5"], ["top_k` is 5", "num_experts = 4"]),
                (["model.num_expert_groups=3"],
                 ["num_expert_groups` is 3", "divide num_experts = 4"]),
                (["model.num_expert_groups=4", "model.num_limited_groups=2"],
                 ["num_expert_groups` is 4", "1 of 4 experts per group"]),
                (["model.num_expert_groups=2", "model.num_limited_groups=3"],
                 ["num_limited_groups` is 3", "num_expert_groups = 2"]),
                (["model.num_expert_groups=2", "model.num_limited_groups=1",
                  "model.top_k=3"], ["top_k` is 3", "offer only 2"]),
                (["model.num_limited_groups=1"], ["num_limited_groups` is 1"]),
                (["data.noise_levels=12"], ["12", "vocab_size = 11"])):
            with self.subTest(settings=settings):
                self.assert_verify_refuses("tiny.toml", *words,
                                           settings=settings)

    def test_site_patterns_that_match_nothing_stop_it_before_any_training(self):
        for key in ("include", "exclude"):
            with self.subTest(key=key):
                self.assert_verify_refuses(
                    "tiny.toml", "`routed_expertz*`", key, "GEMM sites",
                    settings=[f'arms.mxfp8.{key}=["routed_expertz*"]'])

    def test_overrides_of_another_form(self):
        for text in ("steps", "=3", "train=3"):
            with self.subTest(text=text):
                self.assert_verify_refuses("tiny.toml", f"--set {text}",
                                           settings=[text])

    def test_an_arm_that_is_not_in_the_file(self):
        result = self.run_isoloss("run", "tiny.toml", "--arm", "bf61",
                                  "--out", "out")

        self.assert_refused(result, "`bf61`", "bf16, mxfp8", "Did you mean `bf16`?")
        self.assert_no_files("out")

    def test_a_policy_that_is_missing_or_wrong(self):
        self.write("gate.toml", "alpha = 0.05\nmargin_percen = 1\n")
        for policy, words in (
                ("none.toml", ["none.toml", "No such file"]),
                (".", ["Is a directory"]),
                ("gate.toml", ["gate.toml:2:", "`margin_percent`?"])):
            with self.subTest(policy=policy):
                result = self.run_isoloss("verify", "tiny.toml", "--out", "out",
                                          "--policy", policy)

                self.assert_refused(result, *words)
                self.assert_no_files("out")

    def test_a_dry_run_checks_and_trains_nothing(self):
        result = self.run_isoloss("verify", "tiny.toml", "--dry-run",
                                  "--out", "out")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertIn("[arms.mxfp8]", result.stdout)
        self.assertIn("# arm mxfp8: recipe mxfp8_rceil", result.stdout)
        self.assert_no_files("out")


class TensorsToLog(ProgramTest):
    def test_patterns_and_steps_that_nothing_has(self):
        for arguments, words in (
                (["--dump", "wqq"], ["log.dump_tensors", "`wqq`"]),
                (["--dump", "a'b\"c\\"], ["log.dump_tensors", "`a'b\"c\\`"]),
                (["--set", 'log.statistics_tensors=["layers.9"]'],
                 ["log.statistics_tensors", "`layers.9`"]),
                (["--dump", "wq_", "--dump-steps", "21"],
                 ["log.dump_steps", "21", "1 to 20"])):
            with self.subTest(arguments=arguments):
                result = self.run_isoloss("run", "tiny.toml", "--out", "out",
                                          *arguments)

                self.assert_refused(result, *words)
                self.assert_no_files("out")

    def test_good_ones_are_taken(self):
        result = self.run_isoloss(
            "run", "tiny.toml", "--arm", "mxfp8", "--out", "dumped",
            "--dump", "wq_", "--dump", "router", "--dump-steps", "2",
            "--dump-steps", "20", "--set=train.seeds=[1]")

        self.assertEqual(result.returncode, PASS, result.stderr)
        self.assertEqual(
            sorted(p.name for p in (self.folder / "dumped").iterdir()),
            ["dumps", "mxfp8-seed1.h5"])
        self.assertEqual(
            sorted(p.name for p in (self.folder / "dumped/dumps").iterdir()),
            ["mxfp8-seed1.dump-000002.h5", "mxfp8-seed1.dump-000020.h5"])
        self.assertIn("% of the run", result.stderr)


class BadCorpus(ProgramTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.write("files.toml", FILES)
        cls.write("tokens.toml", TOKENS)
        cls.write("text/ok.txt", "All happy families are alike. " * 100)
        (cls.folder / "empty_folder").mkdir()
        cls.write("empty_file", "")

    def assert_corpus_refused(self, file, paths, *words, settings=()):
        result = self.run_isoloss(
            "verify", file, "--out", "out", f"--set=data.paths={paths}",
            *(f"--set={setting}" for setting in settings))

        self.assert_refused(result, "corpus: ", *words)
        self.assert_no_files("out")

    def test_the_good_one_is_taken(self):
        result = self.run_isoloss("run", "files.toml", "--out", "good",
                                  "--set=train.steps=1")

        self.assertEqual(result.returncode, PASS, result.stderr)

    def test_nothing_to_read(self):
        for paths, words in (('["nowhere"]', ["nowhere", "No such file"]),
                             ('["empty_folder"]', ["empty_folder", "0 tokens"]),
                             ('["empty_file"]', ["empty_file", "0 tokens"]),
                             ('["/dev/null"]', ["/dev/null"])):
            with self.subTest(paths=paths):
                self.assert_corpus_refused("files.toml", paths, *words)

    def test_file_patterns_that_match_nothing(self):
        self.assert_corpus_refused(
            "files.toml", '["text"]', '"*.cc"', "data.include",
            settings=['data.include=["*.cc"]'])

    def test_text_shorter_than_one_sequence(self):
        self.write("short.txt", "too short")
        self.assert_corpus_refused("files.toml", '["short.txt"]', "of 9 tokens",
                                   "one sequence of 19 needs 20")

    def test_held_out_text_shorter_than_its_sequences(self):
        self.assert_corpus_refused(
            "files.toml", '["text"]', "held-out share has 300 of 3000 tokens",
            settings=["log.eval_sequences=1000"])

    def test_token_files(self):
        (self.folder / "odd.bin").write_bytes(b"\1\0" * 2000 + b"\1")
        (self.folder / "large.bin").write_bytes(b"\1\0" * 2000 + b"\13\0")
        for path, words in (("odd.bin", ["odd byte"]),
                            ("large.bin", ["token 2000", "is 11", "11 tokens"]),
                            ("text", ["not a file"])):
            with self.subTest(path=path):
                self.assert_corpus_refused("tokens.toml", f'["{path}"]', path,
                                           *words)

    def test_text_that_may_not_be_read(self):
        secret = self.write("secret.txt", "secret " * 1000)
        secret.chmod(0)
        with self.unprivileged() as options:
            result = self.run_isoloss("run", "files.toml", "--out", "/dev/null",
                                      '--set=data.paths=["secret.txt"]',
                                      **options)

        self.assert_refused(result, "secret.txt", "Permission denied")

    def test_unknown_variables_in_paths(self):
        result = self.run_isoloss("verify", "files.toml", "--out", "out",
                                  '--set=data.paths=["${EIGEN_DIR}/x"]')

        self.assert_refused(result, "`EIGEN_DIR`", "EIGEN3_INCLUDE_DIR")
