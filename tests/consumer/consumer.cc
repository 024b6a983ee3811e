// A number format, a recipe and a level of the gate that isoloss does not have:
// quantises with them, trains BF16 against the recipe and judges the runs.
//
// Usage: consumer FOLDER      FOLDER gets the logs
//
// Exit code: that of the verdict.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "isoloss/compare/pair.h"
#include "isoloss/formats/format.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/gate/judge.h"
#include "isoloss/gate/ladder.h"
#include "isoloss/precision/recipe.h"
#include "isoloss/runlog/reader.h"
#include "isoloss/train/experiment.h"
#include "isoloss/train/runner.h"

namespace {

using namespace isoloss;

/// Three bits of exponent, four of mantissa, all codes finite: up to 31.
constexpr formats::Format kE3m4 = {
    .name = "e3m4",
    .exponent_bits = 3,
    .mantissa_bits = 4,
    .bias = 3,
    .emax = 4,
    .max_code = 0x7F,
    .has_infinity = false,
    .nan_code = 0,
    .source = "IEEE 754's scheme with all codes finite",
};

/// What 1.51, 40 and 4 become.
void QuantizeWithIt() {
  const formats::Quantization quantization = {
      .element = &kE3m4,
      .scale_rule = formats::ScaleRule::kTe,
      .scale_format = formats::ScaleFormat::kPow2};
  const float values[] = {1.51F, 40, 4};
  const formats::QuantizedTensor quantized =
      formats::Quantize({values, 1, 3}, quantization);
  const Matrix<float> result = formats::Dequantize(quantized, quantization);
  fmt::print("{}{}: {}\n", formats::QuantizationName(quantization),
             formats::WrongQuantization(quantization),
             fmt::join(result.data(), result.data() + result.size(), ", "));
}

precision::Recipe E3m4Recipe() {
  const formats::Quantization operand = {&kE3m4, formats::ScaleRule::kRceil};
  precision::Recipe recipe;
  recipe.name = "e3m4_rceil";
  recipe.summary = "MX blocks of E3M4 in all three products";
  recipe.source = "this file";
  recipe.fprop = {operand, operand};
  recipe.dgrad = {operand, operand};
  recipe.wgrad = {operand, operand};
  recipe.include = {"attention", "routed_experts"};
  return recipe;
}

/// The final training losses of each pair lie within 1 nat.
gate::LevelFindings JudgeLastLoss(const gate::Evidence& evidence,
                                  const gate::Policy& /*policy*/) {
  double widest = 0;
  for (const compare::SeedPair& pair : evidence.pairing->pairs) {
    widest =
        std::max(widest, std::fabs(pair.candidate->log.steps.loss_nats.back() -
                                   pair.baseline->log.steps.loss_nats.back()));
  }
  const gate::Outcome outcome =
      widest < 1.0 ? gate::Outcome::kPass : gate::Outcome::kFail;
  return {.checks = {{.name = "last_loss",
                      .outcome = outcome,
                      .quantity = "widest gap of last losses",
                      .value = widest,
                      .relation = "<",
                      .limit = 1.0,
                      .unit = "nats"}}};
}

constexpr gate::Level kLastLoss = {
    .id = gate::LevelId::kFirstOther,
    .name = "X1",
    .question = "do the last losses lie within 1 nat?",
    .needs = gate::Needs::kSoundRuns,
    .decides = gate::Decides::kBoth,
    .run = &JudgeLastLoss};

constexpr std::string_view kExperiment = R"(
name = "consumer"
[model]
preset = "dsv3-nano"
[data]
source = "synthetic"
sequence_length = 32
[train]
steps = 4
sequences_per_batch = 2
warmup_steps = 2
seeds = [1, 2, 3]
[log]
eval_every = 4
eval_sequences = 2
[arms.bf16]
recipe = "bf16"
[arms.own]
recipe = "bf16"
)";

gate::Judgement TrainAndJudge(const std::filesystem::path& folder) {
  train::Experiment experiment =
      train::ParseExperiment(kExperiment, folder / "consumer.toml");
  experiment.arms[1].Use(E3m4Recipe());
  std::vector<compare::Run> runs;
  const train::LeftLogs left =
      train::ExecuteRuns(experiment, train::PlanRuns(experiment),
                         train::LoadCorpusOf(experiment), folder);
  for (const std::filesystem::path& log : left.logs) {
    runs.push_back({log.string(), runlog::ReadRunLog(log)});
  }

  const compare::Pairing pairing =
      compare::PairBySeed("bf16", compare::RunsOfArm(runs, "bf16"), "own",
                          compare::RunsOfArm(runs, "own"));
  std::vector<const gate::Level*> levels(gate::Ladder().begin(),
                                         gate::Ladder().end());
  levels.push_back(&kLastLoss);
  gate::Policy policy;
  policy.require_tuning = false;  // four steps have no best rate
  return gate::Judge({.pairing = &pairing}, policy, {.levels = levels});
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::filesystem::create_directories(argv[1]);
  fmt::print("e3m4: 0.7 is {}, 100 is {}\n",
             formats::RoundToFormat(kE3m4, 0.7F, formats::Overflow::kSaturate),
             formats::RoundToFormat(kE3m4, 100, formats::Overflow::kSaturate));
  QuantizeWithIt();
  const gate::Judgement judgement = TrainAndJudge(argv[1]);
  fmt::print("recipes: {}, {}\n", judgement.baseline.recipe,
             judgement.candidate.recipe);
  for (const gate::Check& check : judgement.checks) {
    fmt::print("{} {} {}: {}\n", gate::OutcomeName(check.outcome), check.level,
               check.name, check.quantity);
  }
  return gate::ExitCode(judgement.outcome);
}
