#include "isoloss/train/experiment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/recording.h"
#include "isoloss/runlog/tuning.h"
#include "isoloss/train/presets.h"
#include "train/experiment_text.h"

namespace isoloss::train::experiment_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(Experiment, ArmsKeepTheOrderOfTheFile) {
  const Experiment experiment = Parse(kText);

  std::vector<std::string> names;
  for (const Arm& arm : experiment.arms) names.push_back(arm.name);
  EXPECT_THAT(names, ElementsAre("zero", "mxfp8", "again"));
  EXPECT_EQ(experiment.arms[1].recipe, "mxfp8_rceil");
  EXPECT_FALSE(experiment.arms[1].include.has_value());
  EXPECT_THAT(experiment.arms[1].exclude.value(), ElementsAre("lm_head"));
}

TEST(Experiment, ArmsOfOneLineAndOfOverridesKeepTheirOrder) {
  constexpr std::string_view kOneLine =
      "name = \"t\"\ndata = {source = \"synthetic\"}\n"
      "arms = {z = {recipe = \"bf16\"}, a = {recipe = \"bf16\"}}\n";

  const Experiment experiment = Parse(
      kOneLine, {"arms.y.recipe=mxfp8_floor", "arms.b.recipe=mxfp8_rceil"});

  std::vector<std::string> names;
  for (const Arm& arm : experiment.arms) names.push_back(arm.name);
  EXPECT_THAT(names, ElementsAre("z", "a", "y", "b"));
}

TEST(Experiment, PathsAreRelativeToTheFileAndMayUseVariables) {
  const Experiment experiment = Parse(kText);

  const auto& source = std::get<corpus::FilesSource>(experiment.corpus_source);
  EXPECT_THAT(source.paths,
              ElementsAre("folder/text", "/usr/include/eigen3/Eigen"));
}

TEST(Experiment, KeysOverrideThePresetAndOverridesOverrideKeys) {
  const Preset& preset = PresetByName("dsv3-small");

  const Experiment experiment = With(
      {"model.preset=dsv3-small", "model.dim=32", "model.dim=64",
       "train.lr=1e-4", "model.score_function=softmax", "train.seeds=[7]"});

  EXPECT_EQ(experiment.model.dim, 64u);
  EXPECT_EQ(experiment.model.q_lora_rank, preset.model.q_lora_rank);
  EXPECT_EQ(experiment.model.score_function, model::ScoreFunction::kSoftmax);
  EXPECT_EQ(experiment.data.sequence_length, preset.sequence_length);
  EXPECT_EQ(experiment.train.lr, 1e-4);
  EXPECT_EQ(experiment.train.steps, preset.train.steps);
  EXPECT_THAT(experiment.train.seeds, ElementsAre(7u));
}

TEST(Experiment, ResolvedTomlParsesBackToTheSameForEverySource) {
  // Every kind of value, away from its default, and awkward numbers.
  const std::vector<std::string> changes = {
      "train.decay_ratio=0.8",
      "train.decay_type=cosine",
      "train.lr=3.3e-5",
      "model.yarn=true",
      "model.rope_theta=1e6",
      "model.mscale=0.7",
      "gate.policy=\"a\\\"\\\\\\u0001 b.toml\"",
      "arms.mxfp8.include=[\"moe\", \"w*\"]",
      "parallel.workers=3",
      "parallel.ranks=4",
      "parallel.expert_data_parallel=2",
      "parallel.ranks_per_node=1",
      "parallel.dispatch_units=4",
      "parallel.transport=shuffled",
      "parallel.shuffle_seed=9223372036854775807",
      "parallel.deadline_seconds=0.25",
      "parallel.payload=mx1x32",
      "arms.mxfp8.exchange=node",
      "arms.mxfp8.combine_order=last_slot",
      "arms.mxfp8.expert_padding=128",
      "arms.mxfp8.perturb=one_ulp",
      "arms.mxfp8.perturb_draw=7",
      "routing.mode=replay",
      "routing.replay=\"logs/{seed}.h5\"",
      "log.routing=true",
      "train.seeds=[9223372036854775807, 0]"};
  std::vector<std::string> synthetic = changes;
  for (const char* more : {"data={}", "data.source=synthetic", "data.order=2",
                           "data.noise_levels=5", "data.seed=12"}) {
    synthetic.emplace_back(more);
  }
  std::vector<std::string> tokens = changes;
  for (const char* more : {"data.source=tokens", "data.token_type=uint32"}) {
    tokens.emplace_back(more);
  }

  for (const auto& overrides : {changes, synthetic, tokens}) {
    const Experiment experiment = With(overrides);
    const std::string resolved = experiment.ResolvedToml();

    const Experiment again = Parse(resolved);

    EXPECT_EQ(again.ResolvedToml(), resolved);
    EXPECT_EQ(again.corpus_source.index(), experiment.corpus_source.index());
    EXPECT_EQ(again.train.lr, 3.3e-5);
    EXPECT_EQ(again.gate.policy, "a\"\\\x01 b.toml");
    EXPECT_EQ(again.train.seeds.front(), 9223372036854775807u);
    EXPECT_THAT(again.arms[1].include.value(), ElementsAre("moe", "w*"));
    EXPECT_EQ(again.arms[1].perturb, Perturb::kOneUlp);
    EXPECT_EQ(again.arms[1].perturb_draw, 7);
    EXPECT_EQ(again.arms[0].perturb, std::nullopt);
    EXPECT_EQ(again.parallel.shuffle_seed, 9223372036854775807u);
    EXPECT_EQ(again.routing.replay, "logs/{seed}.h5");
    EXPECT_TRUE(again.log.routing);
  }
}

TEST(Experiment, ConfigTextHoldsWhatRunsDependOnAndNothingElse) {
  const std::string text = Parse(kText).ConfigText();

  EXPECT_THAT(text, Not(HasSubstr("paths")));
  for (const char* same :
       {"name=other", "data.paths=[\"/elsewhere\"]", "parallel.workers=2",
        "gate.policy=other.toml", "arms.mxfp8.recipe=mxfp8_floor",
        "train.seeds=[9]", "arms.new.recipe=fp32", "log.digests_first=3"}) {
    EXPECT_EQ(With({same}).ConfigText(), text) << same;
  }
  for (const char* different :
       {"model.dim=64", "data.sequence_length=64", "data.include=[\"*.h\"]",
        "train.beta1=0.8", "log.eval_every=7", "train.decay_ratio=0.5",
        "data.source=tokens", "data={source=\"synthetic\"}"}) {
    EXPECT_NE(With({different}).ConfigText(), text) << different;
  }
}

// Logs keep digests of this text for years: a key that is added later leaves it
// as it is, a preset is what it stands for.
TEST(Experiment, ConfigTextListsWhatDiffersFromTheDefaults) {
  constexpr std::string_view kPlain =
      "name = \"t\"\ndata = {source = \"synthetic\"}\n"
      "arms = {a = {recipe = \"bf16\"}, b = {recipe = \"fp32\"}}\n";
  const std::string plain = "data.source = \"synthetic\"\n";

  EXPECT_EQ(Parse(kPlain).ConfigText(), plain);
  EXPECT_EQ(Parse(kPlain, {"train.lr=0.001", "data.seed=0", "model.yarn=false",
                           "routing.mode=learned", "log.eval_every=50"})
                .ConfigText(),
            plain);
  EXPECT_EQ(Parse(kPlain, {"train.lr=0.01", "data.seed=3",
                           "routing.mode=forced_balance", "log.eval_every=7"})
                .ConfigText(),
            "data.seed = 3\n" + plain +
                "log.eval_every = 7\nrouting.mode = \"forced_balance\"\n"
                "train.lr = 0.01\n");
  EXPECT_EQ(Parse(kPlain, {"model.preset=dsv3-nano"}).ConfigText(),
            plain +
                "model.dense_hidden_dim = 256\nmodel.dim = 96\n"
                "model.moe_hidden_dim = 64\ntrain.lr = 0.0015\n"
                "train.min_lr_factor = 0.0\n");
}

TEST(Experiment, ANewKeyLeavesConfigTextAsItIsWhileItHasItsDefault) {
  const auto with_key = [](std::string toml, const std::string& line) {
    return toml.insert(toml.find("[train]\n") + 8, line);
  };
  const Experiment experiment = With({"train.lr=0.01"});
  Experiment plain;
  plain.data.source = experiment.data.source;
  const std::string defaults =
      with_key(plain.ResolvedToml(), "momentum = 0.0\n");
  const auto text = [&](const std::string& line) {
    return ChangedConfig(with_key(experiment.ResolvedToml(), line), defaults);
  };

  EXPECT_EQ(text("momentum = 0.0\n"), experiment.ConfigText());
  EXPECT_THAT(text("momentum = 0.5\n"),
              AllOf(HasSubstr("\ntrain.momentum = 0.5\n"),
                    testing::Ne(experiment.ConfigText())));
}

// A digest says nothing of a key that has its default, so another default would
// make equal digests of different runs. A new key is added below with a default
// under which runs compute what they did without it; no line ever changes.
TEST(Experiment, DefaultsThatDigestsRelyOnNeverChange) {
  constexpr std::string_view kDefaults = R"([model]
vocab_size = 256
dim = 64
n_layers = 2
n_dense_layers = 1
n_heads = 4
q_lora_rank = 0
kv_lora_rank = 32
qk_nope_head_dim = 16
qk_rope_head_dim = 8
v_head_dim = 16
dense_hidden_dim = 128
moe_hidden_dim = 48
num_experts = 8
num_shared_experts = 1
top_k = 2
num_expert_groups = 0
num_limited_groups = 0
score_function = "sigmoid"
route_norm = true
route_scale = 2.5
tied_embeddings = false
norm_eps = 1e-05
rope_theta = 10000.0
yarn = false
rope_factor = 40.0
beta_fast = 32.0
beta_slow = 1.0
original_seq_len = 4096.0
mscale = 1.0
[data]
sequence_length = 128
held_out_share = 0.1
include = []
token_type = "uint16"
order = 1
noise_levels = 8
tokens = 1000000
seed = 0
[train]
steps = 300
sequences_per_batch = 8
lr = 0.001
warmup_steps = 100
decay_type = "linear"
min_lr_factor = 0.1
clip_norm = 1.0
weight_decay = 0.1
beta1 = 0.9
beta2 = 0.95
eps = 1e-08
load_balance_coeff = 0.01
[parallel]
dispatch_units = 1
[routing]
mode = "learned"
[log]
eval_every = 50
eval_sequences = 32
)";
  std::map<std::string, std::string> covered;
  for (const char* source : {"files", "tokens", "synthetic"}) {
    Experiment plain;
    plain.data.source = source;
    for (const auto& [key, value] : runlog::KeysOf(plain.ResolvedToml())) {
      if (runlog::IsOfConfig(key) && key != "data.source") covered[key] = value;
    }
  }

  EXPECT_EQ(covered, runlog::KeysOf(std::string(kDefaults)))
      << "A key was added: add its line above, with the default under which "
         "runs compute what they did without it. A default was changed: take "
         "it back and give presets the new value, or the config_digest of "
         "every log, golden and ensemble that relies on it names another "
         "configuration than it did.";
}

TEST(Experiment, TomlWithoutSeedsIsTheSameWhicheverSeedsAreTrained) {
  EXPECT_EQ(With({"train.seeds=[7, 8]"}).TomlWithoutSeeds(),
            With({"train.seeds=[1]"}).TomlWithoutSeeds());
  EXPECT_NE(With({"train.steps=7"}).TomlWithoutSeeds(),
            With({"train.steps=8"}).TomlWithoutSeeds());
}

TEST(ExperimentError, NamesLineAndNearestKeyOfAnUnknownKey) {
  EXPECT_EQ(ErrorOfAppended("[train]\nstep = 5\n"),
            "experiment.toml:15:1: unknown key `train.step`. Known keys of "
            "train: steps, sequences_per_batch, seeds, lr, warmup_steps, "
            "decay_ratio, decay_type, min_lr_factor, clip_norm, weight_decay, "
            "beta1, beta2, eps, load_balance_coeff. Did you mean `steps`?");
  EXPECT_EQ(
      ErrorOfAppended("[trian]\nsteps = 5\n"),
      "experiment.toml:14:2: unknown key `trian`. Known keys: name, model, "
      "data, train, parallel, routing, recipes, arms, log, gate, tuning. Did "
      "you mean `train`?");
  EXPECT_EQ(
      ErrorOfAppended("[arms.b]\nrecipe = \"bf16\"\nincludes = []\n"),
      "experiment.toml:16:1: unknown key `arms.b.includes`. Known keys of "
      "arms.b: sites, recipe, include, exclude, perturb, exchange, payload, "
      "gradient_payload, weight_site, combine_order, expert_padding, then. "
      "Did you mean `include`?");
  // Keys of another source are unknown too.
  EXPECT_THAT(
      ErrorOf(kText, {"data.order=1"}),
      AllOf(StartsWith("--set data.order=1: unknown key `data.order`. "
                       "Known keys of data: source, sequence_length, "),
            EndsWith("It goes with another value of a key beside it.")));
  EXPECT_EQ(ErrorOfAppended("[parallel]\nrank = 8\n"),
            "experiment.toml:15:1: unknown key `parallel.rank`. Known keys of "
            "parallel: ranks, expert_data_parallel, ranks_per_node, "
            "dispatch_units, exchange, payload, gradient_payload, weight_site, "
            "combine_order, expert_padding, transport, on, micro_batches, "
            "workers, deadline_seconds, shuffle_seed. Did you mean `ranks`?");
}

TEST(ExperimentError, NamesLineValueAndRuleOfABadValue) {
  EXPECT_EQ(ErrorOfAppended("[train]\nsteps = -5\n"),
            "experiment.toml:15:9: `train.steps` is -5, but must be an integer "
            "from 1 to 10000000. Correct it or leave it out for 300.");
  EXPECT_EQ(ErrorOfAppended("[train]\nsteps = \"5\"\n"),
            "experiment.toml:15:9: `train.steps` is \"5\", but must be an "
            "integer from 1 to 10000000. Correct it or leave it out for 300.");
  EXPECT_EQ(ErrorOfAppended("[train]\n\nlr = nan\n"),
            "experiment.toml:16:6: `train.lr` is nan, but must be a number in "
            "(0, 1]. Correct it or leave it out for 0.0015.");
  EXPECT_EQ(ErrorOfAppended("[train]\nbeta1 = 1\n"),
            "experiment.toml:15:9: `train.beta1` is 1, but must be a number in "
            "[0, 1). Correct it or leave it out for 0.9.");
  EXPECT_EQ(
      ErrorOfAppended("[train]\neps = 1e-50\n"),
      "experiment.toml:15:7: `train.eps` is 1e-50, but must be a number in "
      "[1e-30, 1]. Correct it or leave it out for 1e-08.");
  EXPECT_EQ(ErrorOfAppended("[train]\nseeds = []\n"),
            "experiment.toml:15:9: `train.seeds` is [], but must be a list of "
            "one or more distinct integers from 0. Write for example [1, 2, 3, "
            "4].");
  EXPECT_EQ(ErrorOfAppended("[train]\nseeds = [1, 2, 1]\n"),
            "experiment.toml:15:9: `train.seeds` holds 1 twice, but must be a "
            "list of one or more distinct integers from 0. Write for example "
            "[1, 2, 3, 4].");
  EXPECT_EQ(
      ErrorOfAppended("[train]\nseeds = [-1]\n"),
      "experiment.toml:15:9: `train.seeds` holds -1, but must be a list of "
      "one or more distinct integers from 0. Write for example [1, 2, 3, "
      "4].");
  std::string recipes;
  for (const precision::Recipe* recipe : precision::AllRecipes()) {
    recipes += (recipes.empty() ? "" : ", ") + recipe->name;
  }
  EXPECT_EQ(ErrorOfAppended("[arms.b]\nrecipe = \"mxfp8_rcei\"\n"),
            "experiment.toml:15:10: `arms.b.recipe` is \"mxfp8_rcei\", but "
            "must be one of " +
                recipes + ". Did you mean `mxfp8_rceil`?");
  EXPECT_EQ(
      ErrorOfAppended("[log]\neval_every = 0\n"),
      "experiment.toml:15:14: `log.eval_every` is 0, but must be an integer "
      "from 1 to 10000000. Correct it or leave it out for 50.");
  EXPECT_EQ(ErrorOf("name = \"a\"\ntrain = 3\n"),
            "experiment.toml:2:9: `train` is 3, but must be a table. Write "
            "[train].");
}

TEST(ExperimentError, ListsWhatAnArmCanBePerturbedBy) {
  EXPECT_EQ(ErrorOf(kText, {"arms.again.perturb=two_ulps"}),
            "--set arms.again.perturb=two_ulps: `arms.again.perturb` is "
            "\"two_ulps\", but must be one of one_ulp.");
  EXPECT_THAT(ErrorOf(kText, {"arms.again.perturb_draw=2"}),
              HasSubstr("`arms.again.perturb_draw` is given, but nothing is "
                        "perturbed. Set perturb = \"one_ulp\""));
}

TEST(ExperimentError, SaysWhichArmsCanBeTheControl) {
  EXPECT_EQ(
      ErrorOf(kText, {"gate.control=mxfp9"}),
      "--set gate.control=mxfp9: `gate.control` names \"mxfp9\", but must name "
      "arms of mxfp8, again. Did you mean `mxfp8`?");
  EXPECT_THAT(
      ErrorOf(kText, {"gate.control=zero"}),
      HasSubstr("names \"zero\", the baseline, but a control is judged"));
  EXPECT_THAT(ErrorOf("name = \"t\"\ndata = {source = \"synthetic\"}\n"
                      "arms = {a = {recipe = \"bf16\"}, "
                      "b = {recipe = \"fp32\"}}\n[gate]\ncontrol = \"b\"\n"),
              HasSubstr("`gate.control` names b, all arms besides the "
                        "baseline"));
  EXPECT_THAT(ErrorOf(kText, {"gate.control=[\"mxfp8\", \"again\"]"}),
              HasSubstr("names mxfp8, again, all arms besides the baseline"));
  EXPECT_THAT(ErrorOf(kText, {"gate.control=[\"again\", \"again\"]"}),
              HasSubstr("holds \"again\" twice, but must be a string or a list "
                        "of distinct strings"));
  EXPECT_THAT(With({"gate.control=again"}).gate.control, ElementsAre("again"));
}

TEST(Experiment, KeepsSeveralControlsInTheirOrder) {
  const Experiment experiment = With(
      {"arms.mild.recipe=mxfp4_floor", "gate.control=[\"again\", \"mild\"]"});

  EXPECT_THAT(experiment.gate.control, ElementsAre("again", "mild"));
  EXPECT_THAT(experiment.ResolvedToml(),
              HasSubstr("\ncontrol = [\"again\", \"mild\"]\n"));
  // One stays as it was in earlier logs.
  EXPECT_THAT(With({"gate.control=again"}).ResolvedToml(),
              HasSubstr("\ncontrol = \"again\"\n"));
}

constexpr const char* kTuning =
    "[tuning]\nrates = [0.001, 0.002, 0.004]\nheld_out = [2, 1.5, inf]\n"
    "seeds = [7, 8]\nconfiguration = \"0a\"\n";

TEST(Experiment, KeepsASweepOfLearningRates) {
  const std::string text = std::string(kText) + kTuning;
  const Experiment experiment = Parse(text);

  EXPECT_THAT(experiment.tuning.rates, ElementsAre(0.001, 0.002, 0.004));
  EXPECT_EQ(experiment.tuning.held_out[1], 1.5);
  EXPECT_TRUE(std::isinf(experiment.tuning.held_out[2]));
  // It travels in the log, whose text has no train.seeds.
  EXPECT_THAT(experiment.TomlWithoutSeeds(),
              HasSubstr("[tuning]\nrates = [0.001, 0.002, 0.004]\n"
                        "held_out = [2.0, 1.5, inf]\nseeds = [7, 8]\n"
                        "configuration = \"0a\"\n"));
  // No run depends on it.
  EXPECT_EQ(experiment.ConfigText(), Parse(kText).ConfigText());
}

// Begun runs and their digests know an experiment by this text.
TEST(Experiment, HasNoTextOfSweepsThatItLacks) {
  EXPECT_THAT(Parse(kText).ResolvedToml(), testing::Not(HasSubstr("tuning")));
  EXPECT_THAT(
      Parse(std::string(kText) + kTuning).ResolvedToml(),
      testing::Not(testing::AnyOf(HasSubstr("scaled"), HasSubstr("optima"))));
}

TEST(Experiment, KeepsTheSweepOfAScaledModelApart) {
  std::string scaled = kTuning;
  scaled.replace(0, 9, "[tuning.scaled]\nparameters = 2e6\n");
  scaled += "seed_optima = [0.002, 0.003]\n";
  const std::string text = std::string(kText) + kTuning;

  const Experiment experiment = Parse(text + scaled);

  EXPECT_EQ(experiment.scaled_tuning.parameters, 2e6);
  EXPECT_THAT(experiment.scaled_tuning.sweep.seed_optima,
              ElementsAre(0.002, 0.003));
  EXPECT_THAT(experiment.tuning.seed_optima, ElementsAre());
  EXPECT_THAT(experiment.ResolvedToml(),
              HasSubstr("\n[tuning.scaled]\nparameters = 2000000.0\nrates = ["
                        "0.001, 0.002, 0.004]\n"));
  EXPECT_EQ(Parse(experiment.ResolvedToml()).ResolvedToml(),
            experiment.ResolvedToml());
  // Sweeps made before still fit.
  EXPECT_EQ(runlog::TuningDigest(experiment.ResolvedToml(), "d", "bf16"),
            runlog::TuningDigest(Parse(kText).ResolvedToml(), "d", "bf16"));
  EXPECT_EQ(experiment.ConfigText(), Parse(kText).ConfigText());
  // It may stand alone.
  EXPECT_THAT(Parse(std::string(kText) + scaled).tuning.rates, ElementsAre());
}

TEST(ExperimentError, SaysWhatTheSweepOfAScaledModelLacks) {
  EXPECT_THAT(ErrorOf(std::string(kText), {"tuning.scaled.parameters=5"}),
              HasSubstr("`tuning.scaled.parameters` must be given with "
                        "`rates`, and not without."));
  EXPECT_THAT(ErrorOf(std::string(kText) +
                      "[tuning.scaled]\nrates = [0.1]\nheld_out = [1]\n"
                      "configuration = \"0a\"\n"),
              HasSubstr("`tuning.scaled.parameters` must be given"));
  EXPECT_THAT(
      ErrorOf(std::string(kText) + kTuning, {"tuning.scaled.parameters=0"}),
      HasSubstr("must be a number in [1, "));
}

TEST(ExperimentError, SaysWhatASweepOfLearningRatesLacks) {
  const std::string text = std::string(kText) + kTuning;
  for (const char* wrong :
       {"tuning.rates=[0.001, 0.002]", "tuning.rates=[0.001, 0.001, 0.002]",
        "tuning.rates=[0.002, 0.001, 0.004]", "tuning.configuration=\"\"",
        "tuning.seed_optima=[0.002]"}) {
    EXPECT_THAT(ErrorOf(text, {wrong}),
                HasSubstr("Let `isoloss study rates` write the table"))
        << wrong;
  }
  EXPECT_THAT(
      ErrorOf(text, {"tuning.held_out=[1, 2, nan]"}),
      HasSubstr("holds nan, but must be a list of numbers in [0, inf]"));
}

TEST(ExperimentError, NamesWhatIsMissing) {
  EXPECT_EQ(ErrorOf(""),
            "experiment.toml: `name` is missing. Results are filed under it.");
  EXPECT_EQ(ErrorOf("name = \"a\"\n[data]\nsorce = \"files\"\n"),
            "experiment.toml:2:1: `data.source` is missing. Give one of files, "
            "tokens, synthetic. Is `sorce` a misspelling of it?");
  EXPECT_EQ(ErrorOf("name = \"a\"\n[data]\nsource = \"files\"\n"),
            "experiment.toml:2:1: `data.paths` is missing. List the files or "
            "folders to train on.");
  EXPECT_EQ(ErrorOf("name = \"a\"\n[data]\nsource = \"synthetic\"\n"),
            "experiment.toml: `arms` holds no arm. Add for example [arms.bf16] "
            "with recipe = \"bf16\".");
  EXPECT_EQ(ErrorOfAppended("[arms.b]\ninclude = []\n"),
            "experiment.toml:14:1: `arms.b.recipe` is missing. Each arm names "
            "the recipe it trains with.");
}

TEST(ExperimentError, NamesTheOverrideInsteadOfALine) {
  EXPECT_EQ(ErrorOf(kText, {"train.steps=0"}),
            "--set train.steps=0: `train.steps` is 0, but must be an integer "
            "from 1 to 10000000. Correct it or leave it out for 300.");
  EXPECT_EQ(ErrorOf(kText, {"trian.steps=5"}),
            "--set trian.steps=5: unknown key `trian`. Known keys: name, "
            "model, data, train, parallel, routing, recipes, arms, log, gate, "
            "tuning. Did you mean `train`?");
  EXPECT_EQ(ErrorOf(kText, {"model.preset=dsv3-nanno"}),
            "--set model.preset=dsv3-nanno: `model.preset` is \"dsv3-nanno\", "
            "but must be one of dsv3-nano, dsv3-small, torchtitan-debug, "
            "dsv3-671b-topology, dsv3-16b-topology, dsv3-16b-layer, dsv3-30m, "
            "dsv3-100m, dsv3-300m, dsv3-1b. Did you "
            "mean `dsv3-nano`?");
  EXPECT_EQ(ErrorOf(kText, {"train.steps"}),
            "--set train.steps: an override must have the form "
            "section.key=value. For example --set train.steps=100.");
  EXPECT_EQ(ErrorOf(kText, {"name.first=1"}),
            "--set name.first=1: `name` is \"trial\", but only a table has "
            "keys. Override the key itself.");
  for (const char* bad :
       {"train.seeds=[1,", "train.lr=", "name=my run", "train.lr=1\nsteps=2"}) {
    EXPECT_THAT(ErrorOf(std::string(kText) + "", {bad}),
                HasSubstr("must be TOML or one bare word"));
  }
}

TEST(ExperimentError, GivesOneLineForASyntaxError) {
  EXPECT_THAT(ErrorOf("name = \"a\"\nsteps = = 3\n"),
              StartsWith("experiment.toml:2:9: "));
  EXPECT_THAT(ErrorOf("name = \"a\n"), StartsWith("experiment.toml:1:10: "));
  EXPECT_THAT(ErrorOfAppended("[model]\n"), StartsWith("experiment.toml:14:"));
}

TEST(ExperimentError, NamesUnknownVariables) {
  EXPECT_EQ(ErrorOf(kText, {"data.paths=[\"${EIGEN_INCLUDE_DIR}\"]"}),
            "--set data.paths=[\"${EIGEN_INCLUDE_DIR}\"]: `data.paths` uses "
            "the unknown variable `EIGEN_INCLUDE_DIR`. Known variables: "
            "EIGEN3_INCLUDE_DIR. Did you mean `EIGEN3_INCLUDE_DIR`?");
  EXPECT_THAT(ErrorOf(kText, {"data.paths=[\"${EIGEN3\"]"}),
              HasSubstr("holds \"${EIGEN3\", but ${ needs a closing brace."));
}

TEST(ExperimentError, RefusesNamesThatAreNoFileNames) {
  EXPECT_THAT(ErrorOf(kText, {"name=\"../a\""}),
              StartsWith("--set name=\"../a\": `name` is \"../a\", but must "
                         "have 1 to 100 letters"));
  EXPECT_THAT(ErrorOfAppended("[arms.\"a/b\"]\nrecipe = \"bf16\"\n"),
              StartsWith("experiment.toml:14:1: `arms.a/b` is not a name"));
}

TEST(ExperimentError, NamesTheModelRule) {
  EXPECT_EQ(ErrorOf(kText, {"model.top_k=9"}),
            "--set model.top_k=9: `model.top_k` is 9, but must be at most "
            "num_experts = 8. Lower top_k or add experts.");
  EXPECT_EQ(
      ErrorOf(kText, {"model.vocab_size=255"}),
      "experiment.toml:5:10: `data.source` is \"files\", whose bytes need a "
      "vocabulary of 256, but model.vocab_size is 255. Raise it.");
  EXPECT_EQ(ErrorOf(kText, {"data={source=\"synthetic\",noise_levels=9}",
                            "model.vocab_size=8"}),
            "--set data={source=\"synthetic\",noise_levels=9}: "
            "`data.noise_levels` is 9, but must be at most model.vocab_size = "
            "8. Correct either.");
}

TEST(ExperimentError, RefusesSizesThatNoMachineHolds) {
  EXPECT_EQ(ErrorOf(kText, {"model.dim=1048577"}),
            "--set model.dim=1048577: `model.dim` is 1048577, but must be an "
            "integer from 1 to 1048576. Correct it or leave it out for 96.");
  // 3 * 2^40 weights of each of two dense layers, at 16 bytes each, are 96
  // TiB; all else is 0.1 TiB.
  EXPECT_EQ(ErrorOf(kText, {"model.dim=1048576", "model.vocab_size=256",
                            "model.n_dense_layers=2",
                            "model.dense_hidden_dim=1048576"}),
            "experiment.toml: the model and a batch of 8 x 128 tokens need at "
            "least 96.1 TiB, but a run may use 1 TiB. Lower the sizes of "
            "[model], train.sequences_per_batch or data.sequence_length.");
}

TEST(ExperimentError, NamesAFileThatCannotBeRead) {
  try {
    LoadExperiment("/nonexistent/experiment.toml");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIo);
    EXPECT_STREQ(error.what(),
                 "/nonexistent/experiment.toml: cannot be read: No such file "
                 "or directory. Give the path of an experiment file.");
  }
}

TEST(ExperimentFiles, OfThisProjectAreValid) {
  for (const char* name : {"demo", "mxfp8_vs_bf16", "synthetic_floor"}) {
    const std::filesystem::path path =
        std::filesystem::path(ISOLOSS_SOURCE_DIR) / "experiments" / name /
        "experiment.toml";

    const Experiment experiment = LoadExperiment(path, Inputs());

    EXPECT_EQ(experiment.name, name);
    EXPECT_GE(experiment.train.seeds.size(), 4u);
  }
}

}  // namespace
}  // namespace isoloss::train::experiment_test
