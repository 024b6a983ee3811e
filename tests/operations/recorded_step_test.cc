// The loss and the optimizer of a trainer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "isoloss/base/error.h"
#include "operations/checks.h"
#include "operations/samples.h"

namespace isoloss::operations::recorded_step_test {
namespace {

using formats::RoundToBf16;
using test_support::Random;
using test_support::Zeros;

// ---- optimizer --------------------------------------------------------------

struct AdamWMistakes {
  double step = 7;
  bool corrects = true;
  bool l2 = false;
  double decay = 0.1;
  bool eps_in_root = false;
  float clip = 1.0f;
  double lr = 1e-3;
  bool swap = false;
  double base_lr = 1e-3;  ///< that is recorded
  bool eps_uncorrected = false;
  bool swap_corrections = false;
  bool decay_after = false;
  bool decay_without_lr = false;
  bool old_moments = false;
  bool zero_moments = false;
  double eps = 1e-3;
  double base_decay = 0.1;  ///< that is recorded
};

/// As torch's single-tensor AdamW in FP32.
Operation AdamW(const AdamWMistakes& mistakes = {}) {
  Operation adamw = {.type = "adamw", .module = "layers.0.wq.weight"};
  const std::vector<size_t> extent = {16, 24};
  adamw.numbers = {{"lr", mistakes.base_lr},
                   {"beta1", 0.9},
                   {"beta2", 0.95},
                   {"eps", 1e-3},
                   {"weight_decay", mistakes.base_decay},
                   {"step", 7}};
  adamw.floats["parameter_before"] = Random(extent, "p", "float32");
  adamw.floats["gradient"] = Random(extent, "g", "float32", 0.1);
  adamw.floats["exp_avg_before"] = Random(extent, "m", "float32", 0.1);
  Floats& squares = adamw.floats["exp_avg_sq_before"] =
      Random(extent, "v", "float32", 0.1);
  for (float& v : squares.values) v = v * v;
  Floats p = *adamw.Find("parameter_before");
  Floats m = *adamw.Find("exp_avg_before");
  Floats v = squares;
  const double b1 = mistakes.swap ? 0.95 : 0.9;
  const double b2 = mistakes.swap ? 0.9 : 0.95;
  double c1 = mistakes.corrects ? 1 - std::pow(b1, mistakes.step) : 1;
  double c2 = mistakes.corrects ? 1 - std::pow(b2, mistakes.step) : 1;
  if (mistakes.swap_corrections) std::swap(c1, c2);
  const auto eps = static_cast<float>(mistakes.eps);
  const auto kept = static_cast<float>(
      1 - (mistakes.decay_without_lr ? 1 : mistakes.lr) * mistakes.decay);
  for (size_t i = 0; i < p.values.size(); ++i) {
    float g = adamw.floats["gradient"].values[i] * mistakes.clip;
    if (mistakes.l2) g += static_cast<float>(mistakes.decay) * p.values[i];
    if (!mistakes.l2 && !mistakes.decay_after) p.values[i] *= kept;
    const float old = m.values[i];
    if (mistakes.zero_moments) m.values[i] = v.values[i] = 0.0f;
    const float old_square = v.values[i];
    m.values[i] += static_cast<float>(1 - b1) * (g - m.values[i]);
    v.values[i] = v.values[i] * static_cast<float>(b2) +
                  static_cast<float>(1 - b2) * g * g;
    const float square = mistakes.old_moments ? old_square : v.values[i];
    const auto correction = static_cast<float>(std::sqrt(c2));
    float root = std::sqrt(square) / correction + eps;
    if (mistakes.eps_in_root) {
      root = std::sqrt(square / static_cast<float>(c2) + eps);
    }
    if (mistakes.eps_uncorrected) {
      root = (std::sqrt(square) + eps) / correction;
    }
    p.values[i] -= static_cast<float>(mistakes.lr / c1) *
                   ((mistakes.old_moments ? old : m.values[i]) / root);
    if (mistakes.decay_after) p.values[i] *= kept;
  }
  adamw.floats["parameter_after"] = std::move(p);
  adamw.floats["exp_avg_after"] = std::move(m);
  adamw.floats["exp_avg_sq_after"] = std::move(v);
  return adamw;
}

TEST(AdamWCheck, NamesEachPlantedMistake) {
  const char* p = "parameter_after";
  ExpectRight({AdamW()});
  ExpectNamed({AdamW({.step = 6})}, p, "bias_correction_early");
  ExpectNamed({AdamW({.step = 8})}, p, "bias_correction_late");
  ExpectNamed({AdamW({.corrects = false})}, p, "no_bias_correction");
  ExpectNamed({AdamW({.l2 = true})}, p, "decay_in_gradient");
  ExpectNamed({AdamW({.decay = 0})}, p, "decay_missing");
  ExpectNamed({AdamW({.eps_in_root = true})}, p, "eps_in_root");
  ExpectNamed({AdamW({.lr = 1e-2})}, p, "lr_off");
  ExpectNamed({AdamW({.swap = true})}, "exp_avg_after", "betas_swapped");
  ExpectNamed({AdamW({.clip = 0.5f})}, "exp_avg_after", "gradient_scaled");
  ExpectNamed({AdamW({.clip = 0.5f})}, p, "gradient_scaled");
  ExpectNamed({AdamW({.eps_uncorrected = true})}, p, "eps_uncorrected");
  ExpectNamed({AdamW({.swap_corrections = true})}, p,
              "bias_corrections_swapped");
  // So that a decay of the step itself is no rounding.
  ExpectNamed({AdamW({.lr = 0.1, .base_lr = 0.1, .decay_after = true})}, p,
              "decay_after");
  ExpectNamed({AdamW({.decay_without_lr = true})}, p, "decay_without_lr");
  ExpectNamed({AdamW({.decay = 0.2})}, p, "decay_twice");
  ExpectNamed({AdamW({.old_moments = true})}, p, "moments_before");
  ExpectNamed({AdamW({.zero_moments = true})}, "exp_avg_after", "moments_zero");
}

TEST(AdamWCheck, FindsTheNumberThatWasUsed) {
  const auto expect = [](const AdamWMistakes& mistakes, const std::string& part,
                         const std::string& name, const std::string& sentence) {
    const Operation adamw = AdamW(mistakes);
    ExpectNamed({adamw}, part, name);
    const std::vector<Finding> findings = Check({adamw});
    const auto found = std::ranges::find(findings, part, &Finding::part);
    EXPECT_EQ(found->explanation->sentence, sentence);
  };
  const char* p = "parameter_after";
  // Steps so large that what is asked for is no rounding.
  expect({.decay = 0.05, .lr = 0.1, .base_lr = 0.1}, p, "decay_off",
         "the parameter decayed by 0.05, not by 0.1");
  expect({.decay = 0.3, .lr = 0.1, .base_lr = 0.1, .base_decay = 0}, p,
         "decay_off", "the parameter decayed by 0.3, not by 0");
  expect({.lr = 0.07, .base_lr = 0.1}, p, "lr_off",
         "the learning rate was 0.7 times what was recorded");
  expect({.lr = 0.0}, p, "not_updated", "the parameter was not updated");
  expect({.lr = 0.1, .base_lr = 0.1, .eps = 1e-2}, p, "eps_off",
         "eps was 0.01, not 0.001");
  expect({.clip = 0.3f}, "exp_avg_after", "gradient_scaled",
         "the gradient was 0.3 times what was recorded: clipped or averaged "
         "otherwise");
  expect({.clip = -1.0f}, "exp_avg_after", "gradient_scaled",
         "the gradient had the other sign");
}

/// What a step leaves that was not made.
void Skip(Operation& adamw) {
  for (const char* name : {"exp_avg", "exp_avg_sq", "parameter"}) {
    const std::string stem = name;
    adamw.floats[stem + "_after"] = adamw.floats.at(stem + "_before");
  }
}

TEST(AdamWCheck, ASkippedStepLeavesAllAsItWas) {
  Operation adamw = AdamW();
  adamw.floats["gradient"].values[3] = std::nanf("");
  Skip(adamw);
  ExpectNamed({adamw}, "parameter_after", "not_updated");
  EXPECT_NE(Check({adamw}).back().explanation->sentence.find(
                "say expected = \"skipped\""),
            std::string::npos);
  adamw.texts["expected"] = "skipped";
  ExpectRight({adamw});
  EXPECT_EQ(Check({adamw}).size(), 3u);
  adamw.floats["exp_avg_after"].values[5] += 1.0f;
  EXPECT_FALSE(Check({adamw})[0].is_right());
  adamw.texts["expected"] = "nothing";
  EXPECT_THROW(Check({adamw}), Error);
}

TEST(AdamWCheck, RefusesNumbersThatNoOptimizerCanHave) {
  for (const auto& [name, value] : {std::pair{"beta1", 1.0},
                                    {"beta1", -0.1},
                                    {"beta2", HUGE_VAL},
                                    {"eps", 0.0},
                                    {"lr", HUGE_VAL},
                                    {"weight_decay", std::nan("")},
                                    {"step", 0.0},
                                    {"step", 1.5},
                                    {"step", 1e10}}) {
    Operation adamw = AdamW();
    adamw.numbers[name] = value;
    EXPECT_THROW(Check({adamw}), Error) << name << " of " << value;
  }
}

TEST(AdamWCheck, NamesMomentsOfTheStepBefore) {
  const Operation before = AdamW();
  Operation after = AdamW();
  for (const char* name : {"exp_avg", "exp_avg_sq"}) {
    const std::string moment = name;
    // It reads what the step before had read, not what that had written.
    after.floats[moment + "_before"] = before.floats.at(moment + "_after");
  }
  Executor executor(1);
  const std::vector<OperationFile> files = {
      {.path = "1", .step = 1, .operations = {before}},
      {.path = "2", .step = 2, .operations = {after}}};

  for (const Finding& finding : CheckOperations(
           files, precision::RecipeByName("mxfp8_rceil"), {}, executor)) {
    if (finding.file == 0 || finding.part != "exp_avg_after") continue;
    ASSERT_TRUE(finding.explanation);
    EXPECT_EQ(finding.explanation->name, "moments_stale");
  }
}

TEST(AdamWCheck, HoldsStateAgainstTheStepBefore) {
  const Operation before = AdamW();
  Operation after = AdamW();
  for (const char* name : {"exp_avg", "exp_avg_sq", "parameter"}) {
    const std::string stem = name;
    after.floats[stem + "_before"] = before.floats.at(stem + "_after");
  }
  Executor executor(1);
  const auto name_of = [&](const std::string& part, const Operation& second,
                           int64_t step) -> std::string {
    const std::vector<OperationFile> files = {
        {.path = "1", .step = 1, .operations = {before}},
        {.path = "2", .step = step, .operations = {second}}};
    for (const Finding& finding : CheckOperations(
             files, precision::RecipeByName("bf16"), {}, executor)) {
      if (finding.part != part) continue;
      return finding.is_right() ? "right" : finding.explanation->name;
    }
    return "not compared";
  };
  EXPECT_EQ(name_of("parameter_before", after, 2), "right");
  EXPECT_EQ(name_of("exp_avg_before", after, 3), "not compared");
  Operation wrong = after;
  std::ranges::fill(wrong.floats["exp_avg_before"].values, 0.0f);
  EXPECT_EQ(name_of("exp_avg_before", wrong, 2), "moments_lost_between_steps");
  wrong = after;
  wrong.floats["parameter_before"] = before.floats.at("parameter_before");
  EXPECT_EQ(name_of("parameter_before", wrong, 2), "update_lost_between_steps");
  wrong.floats["parameter_before"].values[0] += 1.0f;
  EXPECT_EQ(name_of("parameter_before", wrong, 2), "other_parameter");
}

TEST(AdamWCheck, TheCountOfTheBiasCorrectionGrowsByOne) {
  const auto name_of = [](double count, bool skipped = false) -> std::string {
    Operation before = AdamW();
    Operation after = before;
    after.numbers["step"] = count;
    if (skipped) before.texts["expected"] = "skipped";
    Executor executor(1);
    const std::vector<OperationFile> files = {
        {.path = "1", .step = 1, .operations = {before}},
        {.path = "2", .step = 2, .operations = {after}}};
    for (const Finding& finding : CheckOperations(
             files, precision::RecipeByName("bf16"), {}, executor)) {
      if (finding.part == "step") return finding.explanation->name;
    }
    return "right";
  };
  EXPECT_EQ(name_of(8), "right");
  EXPECT_EQ(name_of(7), "count_began_anew");
  EXPECT_EQ(name_of(1), "count_began_anew");
  EXPECT_EQ(name_of(9), "count_jumped");
  EXPECT_EQ(name_of(7, /*skipped=*/true), "right");
}

/// As torch's for-loop on tensors in BF16: every step is rounded. `scalars`:
/// those too, as on a CPU. `lerps`: newer versions.
Operation AdamWInBf16(bool scalars, bool lerps) {
  Operation adamw = AdamW();
  adamw.numbers["weight_decay"] = 0.5;  // no decay that is lost in a rounding
  adamw.numbers["lr"] = 0.1;
  for (auto& [name, tensor] : adamw.floats) {
    tensor.type = "bfloat16";
    for (float& value : tensor.values) value = RoundToBf16(value);
  }
  const auto scalar = [&](double value) {
    const auto single = static_cast<float>(value);
    return scalars ? RoundToBf16(single) : single;
  };
  const auto r = [](float value) { return RoundToBf16(value); };
  const double c1 = 1 - std::pow(0.9, 7);
  const double c2 = 1 - std::pow(0.95, 7);
  for (size_t i = 0; i < adamw.Find("gradient")->values.size(); ++i) {
    const auto at = [&](const char* name) -> float& {
      return adamw.floats[name].values[i];
    };
    const float g = at("gradient");
    const float old = at("exp_avg_before");
    const float m = lerps ? r(old + scalar(0.1) * (g - old))
                          : r(r(old * scalar(0.9)) + scalar(1 - 0.9) * g);
    const float v = r(r(at("exp_avg_sq_before") * scalar(0.95)) +
                      static_cast<float>(1 - 0.95) * g * g);
    const float root =
        r(r(r(std::sqrt(v)) / scalar(std::sqrt(c2))) + scalar(1e-3));
    at("exp_avg_after") = m;
    at("exp_avg_sq_after") = v;
    at("parameter_after") =
        r(r(at("parameter_before") * scalar(1 - 0.1 * 0.5)) -
          static_cast<float>(0.1 / c1) * (m / root));
  }
  return adamw;
}

TEST(AdamWCheck, StepsInBf16AreRight) {
  for (const bool scalars : {false, true}) {
    for (const bool lerps : {false, true}) {
      Operation adamw = AdamWInBf16(scalars, lerps);
      ExpectRight({adamw});
      // With FP32 moments, nothing rounds on the way.
      for (const char* name : {"exp_avg_before", "exp_avg_sq_before"}) {
        adamw.floats[name].type = "float32";
      }
      EXPECT_FALSE(Part(Check({adamw}), "parameter_after").is_right());
    }
  }
}

TEST(LinearCheck, HoldsTheWeightAgainstTheParameterOfItsStep) {
  Operation linear = test_support::LinearInputs();
  test_support::Compute(precision::RecipeByName("bf16"), linear);
  const auto name_of = [&](float before, float after, bool call_first) {
    Operation adamw = AdamW();
    adamw.module = linear.module + ".weight";
    for (auto& [name, tensor] : adamw.floats) {
      const float factor = name == "parameter_before"  ? before
                           : name == "parameter_after" ? after
                                                       : 0.0f;
      tensor = *linear.Find("weight");
      tensor.type = "float32";
      for (float& value : tensor.values) value *= factor;
    }
    std::vector<Operation> operations = {linear, adamw};
    if (!call_first) std::swap(operations[0], operations[1]);
    Executor executor(1);
    for (const Finding& finding :
         CheckOperations({{.path = "1", .operations = operations}},
                         precision::RecipeByName("bf16"), {}, executor)) {
      if (finding.part == "weight") return finding.explanation->name;
    }
    return std::string("right");
  };
  EXPECT_EQ(name_of(1, 2, true), "right");
  EXPECT_EQ(name_of(2, 3, true), "other_weight");
  EXPECT_EQ(name_of(2, 1, true), "weight_after_update");
  // A call after the update.
  EXPECT_EQ(name_of(2, 1, false), "right");
  EXPECT_EQ(name_of(2, 3, false), "other_weight");
}

TEST(LinearCheck, HoldsTheWeightAgainstTheUpdateOfTheStepBefore) {
  Operation linear = test_support::LinearInputs();
  test_support::Compute(precision::RecipeByName("bf16"), linear);
  Operation adamw = {.type = "adamw", .module = linear.module + ".weight"};
  adamw.numbers = {{"lr", 0.0},   {"beta1", 0.9},        {"beta2", 0.95},
                   {"eps", 1e-8}, {"weight_decay", 0.0}, {"step", 1}};
  const auto name_of = [&](int64_t step) -> std::string {
    Executor executor(1);
    const std::vector<OperationFile> files = {
        {.path = "1", .step = 1, .operations = {adamw}},
        {.path = "2", .step = step, .operations = {linear}}};
    for (const Finding& finding : CheckOperations(
             files, precision::RecipeByName("bf16"), {}, executor)) {
      if (finding.part != "weight") continue;
      return finding.is_right() ? "right" : finding.explanation->name;
    }
    return "not compared";
  };
  // A master whose last bits BF16 does not hold.
  Floats master = *linear.Find("weight");
  master.type = "float32";
  for (float& value : master.values) value *= 1.0f + 0x1p-12f;
  Floats other = master;
  for (float& value : other.values) value *= 2.0f;
  for (const char* name : {"gradient", "exp_avg_before", "exp_avg_sq_before"}) {
    adamw.floats[name] = Zeros(master.extent, "float32");
  }
  adamw.floats["parameter_after"] = master;
  adamw.floats["parameter_before"] = other;
  EXPECT_EQ(name_of(2), "right");
  EXPECT_EQ(name_of(3), "not compared");
  std::swap(adamw.floats["parameter_after"], adamw.floats["parameter_before"]);
  EXPECT_EQ(name_of(2), "weight_of_step_before");
  adamw.floats["parameter_before"] = other;
  EXPECT_EQ(name_of(2), "other_weight");
  adamw.module = "another";
  EXPECT_EQ(name_of(2), "not compared");
}

// ---- loss -------------------------------------------------------------------

enum class LossOf {
  kAll,
  kSum,
  kIgnoredToo,
  kBf16,
  kShifted,
  kShiftedBack,
  kRolled,
  kRolledBack
};

/// The row whose label row t has; `count` or beyond: none.
size_t LabelRow(LossOf which, size_t t, size_t count) {
  switch (which) {
    case LossOf::kShifted:
      return t + 1;
    case LossOf::kShiftedBack:
      return t == 0 ? count : t - 1;
    case LossOf::kRolled:
      return (t + 1) % count;
    case LossOf::kRolledBack:
      return (t + count - 1) % count;
    default:
      return t;
  }
}

Operation Loss(LossOf which) {
  constexpr size_t kTokens = 24;
  constexpr size_t kWords = 40;
  Operation loss = {.type = "loss", .module = "loss"};
  const Floats& logits = loss.floats["logits"] =
      Random({kTokens, kWords}, "loss logits", "bfloat16", 8.0);
  Integers& labels =
      loss.integers["labels"] = {.extent = {kTokens}, .values = {}};
  loss.numbers["ignore_index"] = -100;
  for (size_t t = 0; t < kTokens; ++t) {
    labels.values.push_back(t % 5 == 2 ? -100
                                       : static_cast<int64_t>(t * 11 % kWords));
  }
  float sum = 0.0f;
  float count = 0.0f;
  for (size_t t = 0; t < kTokens; ++t) {
    const size_t from = LabelRow(which, t, kTokens);
    if (from >= kTokens || labels.values[from] < 0) continue;
    const float* x = logits.values.data() + t * kWords;
    const float most = *std::max_element(x, x + kWords);
    float exps = 0.0f;
    for (size_t v = 0; v < kWords; ++v) exps += std::exp(x[v] - most);
    float nats =
        std::log(exps) + most - x[static_cast<size_t>(labels.values[from])];
    if (which == LossOf::kBf16) nats = RoundToBf16(nats);
    sum += nats;
    count += 1.0f;
  }
  if (which == LossOf::kIgnoredToo) count = static_cast<float>(kTokens);
  if (which == LossOf::kSum) count = 1.0f;
  loss.floats["loss"] = {
      .extent = {1}, .values = {sum / count}, .type = "float32"};
  return loss;
}

TEST(LossCheck, NamesEachPlantedMistake) {
  ExpectRight({Loss(LossOf::kAll)});
  ExpectNamed({Loss(LossOf::kSum)}, "loss", "sum");
  ExpectNamed({Loss(LossOf::kIgnoredToo)}, "loss", "mean_over_ignored");
  ExpectNamed({Loss(LossOf::kBf16)}, "loss", "bf16");
  ExpectNamed({Loss(LossOf::kShifted)}, "loss", "label_shifted");
  ExpectNamed({Loss(LossOf::kShiftedBack)}, "loss", "label_shifted_back");
  ExpectNamed({Loss(LossOf::kRolled)}, "loss", "label_rolled");
  ExpectNamed({Loss(LossOf::kRolledBack)}, "loss", "label_rolled_back");
}

TEST(LossCheck, NamesTheNumberThatItWasDividedBy) {
  for (const float divisor : {4.0f, 8.0f, 3.0f}) {
    Operation loss = Loss(LossOf::kAll);
    loss.floats["loss"].values[0] /= divisor;
    ExpectNamed({loss}, "loss", "loss_scaled");
  }
}

}  // namespace
}  // namespace isoloss::operations::recorded_step_test
