// [parallel], [routing] and what of them arms override and digests hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/train/experiment.h"
#include "isoloss/train/mesh_setup.h"
#include "train/experiment_text.h"

namespace isoloss::train::parallel_section_test {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(ParallelSection, DefaultMeshIsOneRankWithTheFlatExchange) {
  const Experiment experiment = Parse(kText);

  const ParallelConfig& parallel = experiment.parallel;
  EXPECT_EQ(parallel.mesh.experts, experiment.model.num_experts);
  EXPECT_EQ(parallel.mesh.ranks, 1u);
  EXPECT_EQ(parallel.dispatch_units, 1u);
  EXPECT_EQ(parallel.transport, "loop");
  EXPECT_EQ(experiment.routing.mode, RoutingMode::kLearned);
  EXPECT_EQ(DescribeExchange(parallel.exchange.Resolved()),
            "exchange = \"flat\", payload = \"unquantized\", gradient_payload "
            "= \"unquantized\", weight_site = \"source\", combine_order = "
            "\"rank\", expert_padding = 1");
}

TEST(ParallelSection, ArmsOverrideTheExchangeOfParallel) {
  const Experiment experiment =
      With({"parallel.exchange=rank", "parallel.payload=mx1x32",
            "parallel.expert_padding=32", "arms.zero.exchange=node",
            "arms.zero.combine_order=last_slot", "arms.zero.expert_padding=1",
            "arms.mxfp8.exchange=flat", "arms.again.weight_site=before_fc2",
            "arms.again.gradient_payload=e4m3_1x128_pow2"});

  const auto zero = experiment.arms[0].exchange.Resolved();
  EXPECT_EQ(zero.algorithm, expert_parallel::Algorithm::kNode);
  EXPECT_EQ(zero.weight_site, expert_parallel::WeightSite::kExpertOut);
  EXPECT_EQ(zero.order, expert_parallel::CombineOrder::kLastSlot);
  EXPECT_EQ(zero.payload, "mx1x32");
  EXPECT_EQ(zero.padding, 1u);
  const auto mxfp8 = experiment.arms[1].exchange.Resolved();
  EXPECT_EQ(mxfp8.algorithm, expert_parallel::Algorithm::kFlat);
  EXPECT_EQ(mxfp8.weight_site, expert_parallel::WeightSite::kSource);
  EXPECT_EQ(mxfp8.padding, 32u);
  const auto again = experiment.arms[2].exchange.Resolved();
  EXPECT_EQ(again.algorithm, expert_parallel::Algorithm::kRank);
  EXPECT_EQ(again.weight_site, expert_parallel::WeightSite::kBeforeFc2);
  EXPECT_EQ(again.gradient_payload, "e4m3_1x128_pow2");
}

TEST(ParallelSection, ResolvedTomlWritesOutTheWeightSite) {
  const std::string text =
      With({"arms.zero.exchange=titan_bf16"}).ResolvedToml();

  const size_t parallel = text.find("[parallel]");
  const size_t zero = text.find("[arms.zero]");
  const size_t mxfp8 = text.find("[arms.mxfp8]");
  EXPECT_LT(text.find("weight_site = \"source\"", parallel), zero);
  EXPECT_LT(text.find("weight_site = \"expert_out\"", zero), mxfp8);
}

TEST(ParallelSection, PresetsSetTheMeshAndKeysOverrideIt) {
  const Experiment preset = With({"model.preset=dsv3-671b-topology"});
  const Experiment smaller =
      With({"model.preset=dsv3-671b-topology", "parallel.ranks=64"});

  EXPECT_EQ(preset.parallel.mesh.ranks, 256u);
  EXPECT_EQ(preset.parallel.mesh.nodes(), 32u);
  EXPECT_EQ(preset.parallel.mesh.experts, 256u);
  EXPECT_EQ(smaller.parallel.mesh.ranks, 64u);
  EXPECT_EQ(smaller.parallel.mesh.ranks_per_node, 8u);
}

TEST(ParallelSection, AModelWithoutExpertsFitsEveryMesh) {
  const Experiment experiment =
      With({"model.n_dense_layers=2", "parallel.ranks=3"});

  EXPECT_EQ(experiment.parallel.mesh.experts_per_rank(), 1u);
}

TEST(ParallelSection, ReplayPathIsRelativeToTheFileAndHoldsTheSeed) {
  const auto path = [](const std::string& replay) {
    return With({"routing.mode=replay", "routing.replay=\"" + replay + "\""})
        .ReplayPath(7);
  };

  EXPECT_EQ(path("../logs/bf16-seed{seed}.h5"), "logs/bf16-seed7.h5");
  EXPECT_EQ(path("/logs/{seed}/{seed}.h5"), "/logs/7/7.h5");
  EXPECT_EQ(path("one.h5"), "folder/one.h5");
}

TEST(ParallelSection, ConfigTextHoldsWhatBitsOfAllArmsDependOn) {
  const std::string text = Parse(kText).ConfigText();

  for (const char* same :
       {"parallel.ranks=8", "parallel.ranks_per_node=2",
        "parallel.transport=threads", "parallel.shuffle_seed=3",
        "parallel.deadline_seconds=5", "parallel.exchange=titan_bf16",
        "parallel.payload=mx1x32", "parallel.expert_padding=32",
        "arms.mxfp8.exchange=node", "arms.zero.payload=mx1x32",
        "log.routing=true"}) {
    EXPECT_EQ(With({same}).ConfigText(), text) << same;
  }
  for (const char* different :
       {"parallel.dispatch_units=2", "routing.mode=forced_balance"}) {
    EXPECT_NE(With({different}).ConfigText(), text) << different;
  }
}

TEST(ParallelSection, AnArmsExchangeHoldsTheMeshAsFarAsTheArmSumsByIt) {
  const auto text = [](const std::string& exchange,
                       std::vector<std::string> overrides) {
    overrides.emplace_back("parallel.dispatch_units=2");
    overrides.push_back("arms.zero.exchange=" + exchange);
    const Experiment experiment = With(std::move(overrides));
    return DescribeExchange(experiment, experiment.arms.front());
  };
  const std::string ranks4 = "parallel.ranks=4";
  const std::string ranks8 = "parallel.ranks=8";
  const std::string copies2 = "parallel.expert_data_parallel=2";
  const std::string node1 = "parallel.ranks_per_node=1";
  const std::string node2 = "parallel.ranks_per_node=2";
  const std::string node4 = "parallel.ranks_per_node=4";

  EXPECT_EQ(text("flat", {ranks4}), text("flat", {ranks8, node2}));
  EXPECT_EQ(text("titan_bf16", {ranks4}), text("titan_bf16", {ranks8, node2}));
  EXPECT_NE(text("rank", {ranks4}), text("rank", {ranks8}));
  // Two groups of 4 ranks add in each what one of 4 does.
  EXPECT_EQ(text("rank", {ranks4}), text("rank", {ranks8, copies2}));
  EXPECT_EQ(text("rank", {ranks8}), text("rank", {ranks8, node2}));
  EXPECT_NE(text("node", {ranks8}), text("node", {ranks8, node2}));
  EXPECT_NE(text("node", {ranks8, node1}), text("node", {ranks8, node2}));
  // A node that could hold more than a group holds the group.
  EXPECT_EQ(text("node", {ranks4}), text("node", {ranks4, node4}));
  EXPECT_THAT(text("node", {ranks8, node2}),
              EndsWith(", expert_parallel = 8, node_ranks = 2"));
  // Of another arm's mesh nothing depends.
  EXPECT_EQ(text("flat", {"arms.again.exchange=node", ranks8}),
            text("flat", {}));
}

TEST(ParallelSection, ConfigTextHoldsTheRoutingModeButNotTheReplayedPath) {
  const auto text = [](const std::string& replay) {
    return With({"routing.mode=replay", "routing.replay=" + replay})
        .ConfigText();
  };

  EXPECT_EQ(text("a.h5"), text("b.h5"));
  EXPECT_THAT(text("a.h5"), HasSubstr("routing.mode = \"replay\"\n"));
  EXPECT_NE(text("a.h5"), With({"routing.mode=forced_balance"}).ConfigText());
}

TEST(ParallelSection, MemoryGrowsWithRowsBetweenRanksAndWithTheLog) {
  const double bytes = EstimatedBytes(Parse(kText));

  // One MoE layer, 300 steps of 1024 tokens, 2 slots, 8 experts.
  EXPECT_EQ(EstimatedBytes(With({"log.routing=true"})) - bytes,
            300.0 * 1024 * 2 * sizeof(int32_t));
  EXPECT_EQ(EstimatedBytes(With({"parallel.ranks=8"})) - bytes,
            300.0 * (8 - 1) * 3 * sizeof(int64_t));
}

TEST(ParallelSectionError, NamesLineAndRuleOfAMeshThatDoesNotFit) {
  EXPECT_EQ(
      ErrorOfAppended("[parallel]\nranks = 0\n"),
      "experiment.toml:15:9: `parallel.ranks` is 0, but must be an integer "
      "from 1 to 1024. Correct it or leave it out for 1.");
  EXPECT_EQ(ErrorOfAppended("[parallel]\nranks = 3\n"),
            "experiment.toml:15:9: `parallel.ranks` is 3, but ranks / "
            "expert_data_parallel = 3 must divide model.num_experts = 8: each "
            "rank holds as many experts. Choose other ranks.");
  EXPECT_EQ(
      ErrorOfAppended("[parallel]\nranks = 4\nexpert_data_parallel = 3\n"),
      "experiment.toml:16:24: `parallel.expert_data_parallel` is 3, but "
      "must divide parallel.ranks = 4: each copy of the experts takes as "
      "many ranks. Correct either.");
  EXPECT_EQ(ErrorOfAppended("[parallel]\nranks = 8\nranks_per_node = 3\n"),
            "experiment.toml:16:18: `parallel.ranks_per_node` is 3, but must "
            "divide ranks / expert_data_parallel = 8 or be at least that: a "
            "node never holds ranks of two copies. Correct either.");
  EXPECT_EQ(
      ErrorOfAppended("[parallel]\nranks = 4\nexpert_data_parallel = 2\n"),
      "experiment.toml:14:1: `parallel.dispatch_units` is 1, but must be a "
      "multiple of expert_data_parallel = 2: each copy of the experts "
      "takes whole units. Correct either.");
  EXPECT_EQ(ErrorOfAppended("[parallel]\ndispatch_units = 3\n"),
            "experiment.toml:15:18: `parallel.dispatch_units` is 3, but must "
            "divide train.sequences_per_batch = 8. Correct either.");
  EXPECT_EQ(ErrorOf(kText, {"parallel.ranks=8", "data.sequence_length=2",
                            "train.sequences_per_batch=3"}),
            "--set parallel.ranks=8: `parallel.ranks` is 8, but a batch has "
            "train.sequences_per_batch x data.sequence_length = 6 tokens and "
            "each rank needs one. Lower ranks.");
}

TEST(ParallelSectionError, NamesLineAndRuleOfABadExchange) {
  EXPECT_EQ(
      ErrorOfAppended("[parallel]\nexchange = \"nodes\"\n"),
      "experiment.toml:15:12: `parallel.exchange` is \"nodes\", but must be "
      "one of flat, rank, node, titan_bf16. Did you mean `node`?");
  EXPECT_EQ(
      ErrorOfAppended("[parallel]\npayload = \"mx1x23\"\n"),
      "experiment.toml:15:11: `parallel.payload` is \"mx1x23\", but must be "
      "one of unquantized, mx1x32, e4m3_1x128_fp32, e4m3_1x128_pow2. Did "
      "you mean `mx1x32`?");
  EXPECT_EQ(
      ErrorOfAppended("[parallel]\nexpert_padding = 7\n"),
      "experiment.toml:15:18: `parallel.expert_padding` is 7, but must be "
      "one of 1, 8, 16, 32, 128. Correct it or leave it out for 1.");
  EXPECT_EQ(ErrorOfAppended("[parallel]\ncombine_order = 1\n"),
            "experiment.toml:15:17: `parallel.combine_order` is 1, but must be "
            "one of rank, last_slot.");
  EXPECT_EQ(
      ErrorOfAppended("[parallel]\nweight_site = \"sauce\"\n"),
      "experiment.toml:15:15: `parallel.weight_site` is \"sauce\", but must "
      "be one of source, expert_out, before_fc2.");
  EXPECT_THAT(ErrorOfAppended("[parallel]\ntransport = \"thread\"\n"),
              HasSubstr("Did you mean `threads`?"));
  EXPECT_EQ(
      ErrorOfAppended("[parallel]\ndeadline_seconds = 0\n"),
      "experiment.toml:15:20: `parallel.deadline_seconds` is 0, but must be "
      "a number in (0, 86400]. Correct it or leave it out for 60.0.");
}

TEST(ParallelSectionError, NamesTheSectionWhoseWeightSiteDoesNotFit) {
  EXPECT_THAT(
      ErrorOfAppended(
          "[parallel]\nexchange = \"node\"\nweight_site = \"source\"\n"),
      StartsWith("experiment.toml:16:15: [parallel] weight_site is "
                 "`source`, but `node` adds rows"));
  // The arm's exchange, with the site that [parallel] gave to all.
  EXPECT_THAT(ErrorOfAppended("[parallel]\nweight_site = \"source\"\n"
                              "[arms.b]\nrecipe = \"bf16\"\n"
                              "exchange = \"titan_bf16\"\n"),
              StartsWith("experiment.toml:18:12: [arms.b] weight_site is "
                         "`source`, but `titan_bf16` rounds"));
  EXPECT_THAT(ErrorOf(kText, {"arms.zero.exchange=rank",
                              "arms.zero.weight_site=source"}),
              StartsWith("--set arms.zero.weight_site=source: [arms.zero] "
                         "weight_site is `source`"));
}

TEST(ParallelSectionError, NamesTheRuleOfRoutingKeys) {
  EXPECT_EQ(
      ErrorOfAppended("[routing]\nmode = \"forced\"\n"),
      "experiment.toml:15:8: `routing.mode` is \"forced\", but must be one "
      "of learned, forced_balance, replay. Did you mean "
      "`forced_balance`?");
  EXPECT_EQ(
      ErrorOfAppended("[routing]\nmode = \"replay\"\n"),
      "experiment.toml:14:1: `routing.replay` is missing. Give the path of "
      "a run log that was made with log.routing = true.");
  EXPECT_EQ(
      ErrorOfAppended("[routing]\nmode = \"replay\"\nreplay = \"\"\n"),
      "experiment.toml:16:10: `routing.replay` is empty. Give the path of a "
      "run log that was made with log.routing = true.");
  EXPECT_EQ(ErrorOfAppended("[routing]\nreplay = \"a.h5\"\n"),
            "experiment.toml:15:10: `routing.replay` is given, but only mode = "
            "\"replay\" reads a log. Set the mode or leave the key out.");
  EXPECT_THAT(ErrorOfAppended("[routing]\nmodes = \"replay\"\n"),
              HasSubstr("unknown key `routing.modes`. Known keys of routing: "
                        "mode. Did you mean `mode`?"));
}

TEST(ParallelSectionError, RefusesLogsThatNoReaderTakes) {
  // 200,000 steps x 1 layer x 1024 tokens x 2 slots.
  EXPECT_EQ(ErrorOf(kText, {"train.steps=200000", "log.routing=true"}),
            "--set log.routing=true: `log.routing` is true, but the 4.1e+08 "
            "expert ids of all steps are more than the 2.68e+08 values that a "
            "log may hold of one kind. Train for fewer steps or switch it "
            "off.");
  EXPECT_EQ(ErrorOf(kText,
                    {"model.preset=dsv3-671b-topology", "train.steps=1000000"}),
            "experiment.toml: train.steps = 1000000 give a log of 5.12e+08 "
            "values of one kind (per expert or rank), but it may hold "
            "2.68e+08. Train for fewer steps.");
  // 48,000 steps x some 280 tensors x 256 scale bytes.
  EXPECT_EQ(ErrorOf(kText, {"train.steps=48000", "log.statistics_every=1"}),
            "--set log.statistics_every=1: `log.statistics_every` and "
            "log.statistics_first give some 3.44e+09 values of "
            "/tensors/e8m0_histogram, but a log may hold 2.68e+08 of one kind. "
            "Choose fewer steps or tensors.");
}

}  // namespace
}  // namespace isoloss::train::parallel_section_test
