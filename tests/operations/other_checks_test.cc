// Routers, rows that travel, the optimizer and the loss of a trainer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "isoloss/base/error.h"
#include "isoloss/operations/check.h"
#include "isoloss/precision/operands.h"
#include "operations/samples.h"

namespace isoloss::operations {
namespace {

using formats::RoundToBf16;
using testing::Random;
using testing::Zeros;

std::vector<Finding> Check(const std::vector<Operation>& operations) {
  ThreadTeam team(1);
  const std::vector<OperationFile> files = {
      {.path = "f", .operations = operations}};
  CheckExtents(files[0]);
  std::vector<Finding> findings =
      CheckOperations(files, precision::RecipeByName("mxfp8_rceil"), {}, team);
  std::erase_if(findings, [&](const Finding& f) {
    return f.operation + 1 != operations.size();
  });
  return findings;
}

void ExpectRight(const std::vector<Operation>& operations) {
  for (const Finding& finding : Check(operations)) {
    EXPECT_TRUE(finding.is_right())
        << finding.part << " " << finding.comparison.other() << " of "
        << finding.comparison.elements() << ": worst ratio "
        << finding.comparison.Row().worst_ratio;
  }
}

void ExpectNamed(const std::vector<Operation>& operations,
                 const std::string& part, const std::string& name) {
  for (const Finding& finding : Check(operations)) {
    if (finding.part != part) continue;
    EXPECT_GT(finding.comparison.other(), 0) << name;
    ASSERT_TRUE(finding.explanation) << name;
    EXPECT_EQ(finding.explanation->name, name);
    EXPECT_FALSE(finding.explanation->is_ambiguous)
        << name << " or " << finding.explanation->runner_up;
    return;
  }
  FAIL() << "no finding of " << part;
}

// ---- router -----------------------------------------------------------------

struct RouterMistakes {
  bool softmax = false;
  bool ignore_bias = false;
  bool bias_in_weights = false;
  bool normalize = true;
  float scale = 2.5f;
  bool over_all = false;
};

Operation Router(const RouterMistakes& mistakes = {}) {
  constexpr size_t kTokens = 64;
  constexpr size_t kExperts = 8;
  constexpr size_t kSlots = 2;
  Operation router = {.type = "router", .module = "layers.1.router"};
  router.texts["score_function"] = "sigmoid";
  router.numbers = {{"top_k", 2}, {"normalize", 1}, {"scale", 2.5}};
  const Floats& logits = router.floats["logits"] =
      Random({kTokens, kExperts}, "logits", "float32", 4.0);
  const Floats& bias = router.floats["bias"] =
      Random({kExperts}, "router bias", "float32", 0.5);
  Floats& scores = router.floats["scores"] =
      Zeros({kTokens, kExperts}, "float32");
  Floats& weights = router.floats["weights"] =
      Zeros({kTokens, kSlots}, "float32");
  Integers& ids = router.integers["expert_ids"] = {.extent = {kTokens, kSlots},
                                                   .values = {}};
  for (size_t t = 0; t < kTokens; ++t) {
    const float* logit = logits.values.data() + t * kExperts;
    float* score = scores.values.data() + t * kExperts;
    float sum = 0.0f;
    for (size_t e = 0; e < kExperts; ++e) sum += std::exp(logit[e]);
    for (size_t e = 0; e < kExperts; ++e) {
      score[e] = mistakes.softmax ? std::exp(logit[e]) / sum
                                  : 1.0f / (1.0f + std::exp(-logit[e]));
    }
    std::vector<int64_t> order = {0, 1, 2, 3, 4, 5, 6, 7};
    const auto key = [&](int64_t e) {
      const auto place = static_cast<size_t>(e);
      return mistakes.ignore_bias ? score[place]
                                  : score[place] + bias.values[place];
    };
    std::ranges::stable_sort(
        order, [&](int64_t a, int64_t b) { return key(a) > key(b); });
    float total = 1e-20f;
    for (size_t i = 0; i < kSlots; ++i) {
      const auto e = static_cast<size_t>(order[i]);
      ids.values.push_back(order[i]);
      weights.values[t * kSlots + i] =
          score[e] + (mistakes.bias_in_weights ? bias.values[e] : 0.0f);
      total += weights.values[t * kSlots + i];
    }
    if (mistakes.over_all) {
      total = std::accumulate(score, score + kExperts, 0.0f);
    }
    for (size_t i = 0; i < kSlots; ++i) {
      float& weight = weights.values[t * kSlots + i];
      if (mistakes.normalize) weight /= total;
      weight *= mistakes.scale;
    }
  }
  return router;
}

/// Of four groups of two experts, the two with the largest sums are open; with
/// `ignored` all are.
Operation LimitedRouter(bool ignored) {
  Operation router = Router();
  router.numbers["groups"] = 4;
  router.numbers["limited_groups"] = 2;
  const std::vector<float>& scores = router.floats["scores"].values;
  const std::vector<float>& bias = router.floats["bias"].values;
  std::vector<int64_t>& ids = router.integers["expert_ids"].values;
  for (size_t t = 0; 8 * t < scores.size(); ++t) {
    const auto key = [&](int64_t e) {
      const auto place = static_cast<size_t>(e);
      return scores[8 * t + place] + bias[place];
    };
    std::vector<int64_t> groups = {0, 1, 2, 3};
    std::ranges::sort(groups, std::greater(),
                      [&](int64_t g) { return key(2 * g) + key(2 * g + 1); });
    std::vector<int64_t> order;
    for (size_t g = 0; g < (ignored ? 4u : 2u); ++g) {
      order.push_back(2 * groups[g]);
      order.push_back(2 * groups[g] + 1);
    }
    std::ranges::sort(order, std::greater(), key);
    std::copy_n(order.begin(), 2, ids.begin() + static_cast<int64_t>(2 * t));
  }
  router.floats.erase("weights");
  return router;
}

TEST(RouterCheck, KnowsGroupsOfExperts) {
  ExpectRight({LimitedRouter(false)});
  ExpectNamed({LimitedRouter(true)}, "choice", "groups_ignored");
  Operation router = Router();
  router.numbers["groups"] = 3;
  EXPECT_THROW(ExpectRight({router}), Error);
}

TEST(RouterCheck, NamesEachPlantedMistake) {
  ExpectRight({Router()});
  ExpectNamed({Router({.softmax = true})}, "scores", "softmax");
  ExpectNamed({Router({.ignore_bias = true})}, "choice", "bias_ignored");
  ExpectNamed({Router({.bias_in_weights = true})}, "weights",
              "bias_in_weights");
  ExpectNamed({Router({.normalize = false})}, "weights", "not_normalized");
  ExpectNamed({Router({.scale = 1.0f})}, "weights", "scale_missing");
  ExpectNamed({Router({.scale = 1 / 2.5f})}, "weights", "scale_divides");
  ExpectNamed({Router({.normalize = false, .scale = 1.0f})}, "weights",
              "neither");
  ExpectNamed({Router({.over_all = true})}, "weights", "normalized_over_all");
  Operation router = Router();
  router.numbers["normalize"] = 0;
  ExpectNamed({router}, "weights", "normalized");
  router = Router();
  router.texts["score_function"] = "softmax";
  ExpectNamed({router}, "scores", "sigmoid");
  router = Router();
  router.floats["scores"] = router.floats["logits"];
  ExpectNamed({router}, "scores", "logits");
}

TEST(RouterCheck, HoldsTheNumberOfExpertsToWhatIsConfigured) {
  for (const double configured : {1.0, 3.0}) {
    Operation router = Router();
    router.numbers["top_k"] = configured;
    ExpectNamed({router}, "choice", "k_off");
  }
}

TEST(RouterCheck, TakesEitherOfTwoEqualExperts) {
  Operation router = Router();
  for (float& bias : router.floats["bias"].values) bias = 0.0f;
  router.floats.erase("logits");
  for (float& score : router.floats["scores"].values) score = 0.5f;
  for (float& weight : router.floats["weights"].values) weight = 1.25f;

  ExpectRight({router});
}

// ---- dispatch and combine ---------------------------------------------------

Operation Dispatch(const std::function<float(float)>& change, int shift) {
  Operation dispatch = {.type = "dispatch", .module = "layers.1.moe"};
  const Floats& tokens = dispatch.floats["tokens"] =
      Random({16, 32}, "tokens", "float32");
  Integers& source =
      dispatch.integers["source"] = {.extent = {32}, .values = {}};
  Floats& rows = dispatch.floats["rows"] = Zeros({32, 32}, "float32");
  for (int64_t m = 0; m < 32; ++m) source.values.push_back(m * 7 % 16);
  for (int64_t m = 0; m < 32; ++m) {
    const auto from = static_cast<size_t>(
        source.values[static_cast<size_t>((m + shift + 32) % 32)]);
    for (size_t d = 0; d < 32; ++d) {
      rows.values[static_cast<size_t>(m) * 32 + d] =
          change(tokens.values[from * 32 + d]);
    }
  }
  return dispatch;
}

TEST(DispatchCheck, NamesEachPlantedMistake) {
  const auto same = [](float v) { return v; };
  ExpectRight({Dispatch(same, 0)});
  ExpectNamed({Dispatch(same, 1)}, "rows", "rows_shifted");
  ExpectNamed({Dispatch(same, -1)}, "rows", "rows_shifted_back");
  ExpectNamed({Dispatch(
                  [](float v) {
                    return formats::RoundToFormat(formats::FormatByName("e4m3"),
                                                  v,
                                                  formats::Overflow::kSaturate);
                  },
                  0)},
              "rows", "rounded_e4m3");
  // FP32 values that BF16 does not hold.
  Operation rounded = Dispatch(same, 0);
  Floats& tokens = rounded.floats["tokens"];
  for (float& value : tokens.values) value *= 1.0f + 0x1p-9f;
  const auto send = [&](const Matrix<float>& values) {
    const auto& source = rounded.FindIntegers("source")->values;
    for (size_t m = 0; m < source.size(); ++m) {
      std::copy_n(values.Row(static_cast<size_t>(source[m])), 32,
                  rounded.floats["rows"].values.begin() +
                      static_cast<ptrdiff_t>(m * 32));
    }
  };
  Matrix<float> bf16(16, 32);
  for (size_t i = 0; i < bf16.size(); ++i) {
    bf16.data()[i] = RoundToBf16(tokens.values[i]);
  }
  send(bf16);
  ExpectNamed({rounded}, "rows", "rounded_bf16");
  for (const auto& [name, rule] :
       {std::pair{"rounded_mx_rceil", formats::ScaleRule::kRceil},
        {"rounded_mx_floor", formats::ScaleRule::kFloor}}) {
    send(testing::OperandValues(tokens.Rows(), false,
                                precision::MxOperand("e4m3", rule)));
    ExpectNamed({rounded}, "rows", name);
  }
  Operation other = Dispatch(same, 0);
  std::swap_ranges(other.floats["rows"].values.begin(),
                   other.floats["rows"].values.begin() + 32,
                   other.floats["rows"].values.begin() + 64);
  ExpectNamed({other}, "rows", "wrong_token");
}

struct CombineMistakes {
  bool weights = true;
  int addends = 1;
  bool bf16 = false;
  int64_t skip_from = 0;
  int64_t skip_to = 0;
  bool bf16_products = false;
  bool addend_last = false;
};

Operation Combine(const CombineMistakes& mistakes) {
  constexpr size_t kRows = 64;
  constexpr size_t kTokens = 16;
  constexpr size_t kWidth = 32;
  Operation combine = {.type = "combine", .module = "layers.1.moe"};
  const Floats& rows = combine.floats["rows"] = Random({kRows, kWidth}, "rows");
  const Floats& weights = combine.floats["weights"] =
      Random({kRows}, "weights", "float32");
  const Floats& addend = combine.floats["addend"] =
      Random({kTokens, kWidth}, "addend");
  Floats& output = combine.floats["output"] = Zeros({kTokens, kWidth});
  Integers& source =
      combine.integers["source"] = {.extent = {kRows}, .values = {}};
  for (size_t m = 0; m < kRows; ++m) {
    source.values.push_back(static_cast<int64_t>(m * 5 % kTokens));
  }
  for (size_t d = 0; d < kWidth; ++d) {
    std::vector<float> sums(kTokens);
    for (size_t t = 0; t < kTokens; ++t) {
      sums[t] = mistakes.addend_last ? 0.0f
                                     : static_cast<float>(mistakes.addends) *
                                           addend.values[t * kWidth + d];
    }
    for (size_t m = 0; m < kRows; ++m) {
      const auto row = static_cast<int64_t>(m);
      if (row >= mistakes.skip_from && row < mistakes.skip_to) continue;
      float& sum = sums[static_cast<size_t>(source.values[m])];
      const float product = rows.values[m * kWidth + d] *
                            (mistakes.weights ? weights.values[m] : 1.0f);
      sum += mistakes.bf16_products ? RoundToBf16(product) : product;
      if (mistakes.bf16) sum = RoundToBf16(sum);
    }
    for (size_t t = 0; mistakes.addend_last && t < kTokens; ++t) {
      sums[t] += addend.values[t * kWidth + d];
    }
    for (size_t t = 0; t < kTokens; ++t) {
      output.values[t * kWidth + d] = RoundToBf16(sums[t]);
    }
  }
  return combine;
}

TEST(CombineCheck, NamesEachPlantedMistake) {
  Operation experts = testing::GroupedInputs();
  ExpectRight({Combine({})});
  ExpectNamed({Combine({.weights = false})}, "output", "weight_missing");
  ExpectNamed({Combine({.addends = 0})}, "output", "addend_missing");
  ExpectNamed({Combine({.addends = 2})}, "output", "addend_twice");
  ExpectNamed({Combine({.bf16 = true})}, "output", "sums_bf16");
  ExpectNamed({Combine({.skip_from = 0, .skip_to = 16})}, "output",
              "slot_missing_first");
  ExpectNamed({Combine({.skip_from = 48, .skip_to = 64})}, "output",
              "slot_missing_last");
  ExpectNamed({Combine({.bf16_products = true})}, "output", "products_bf16");
  ExpectNamed({Combine({.bf16 = true, .bf16_products = true})}, "output",
              "sums_and_products_bf16");
  ExpectNamed({Combine({.bf16 = true, .addend_last = true})}, "output",
              "sums_bf16_addend_last");
  ExpectNamed(
      {Combine({.bf16 = true, .bf16_products = true, .addend_last = true})},
      "output", "products_and_sums_bf16_addend_last");
  ExpectNamed({experts, Combine({.skip_from = 20, .skip_to = 49})}, "output",
              "expert_missing");
}

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
};

/// As torch's single-tensor AdamW in FP32.
Operation AdamW(const AdamWMistakes& mistakes = {}) {
  Operation adamw = {.type = "adamw", .module = "layers.0.wq.weight"};
  const std::vector<size_t> extent = {16, 24};
  adamw.numbers = {{"lr", mistakes.base_lr}, {"beta1", 0.9},
                   {"beta2", 0.95},          {"eps", 1e-3},
                   {"weight_decay", 0.1},    {"step", 7}};
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
  const auto eps = static_cast<float>(1e-3);
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

TEST(AdamWCheck, NamesMomentsOfTheStepBefore) {
  const Operation before = AdamW();
  Operation after = AdamW();
  for (const char* name : {"exp_avg", "exp_avg_sq"}) {
    const std::string moment = name;
    // It reads what the step before had read, not what that had written.
    after.floats[moment + "_before"] = before.floats.at(moment + "_after");
  }
  ThreadTeam team(1);
  const std::vector<OperationFile> files = {
      {.path = "1", .step = 1, .operations = {before}},
      {.path = "2", .step = 2, .operations = {after}}};

  for (const Finding& finding : CheckOperations(
           files, precision::RecipeByName("mxfp8_rceil"), {}, team)) {
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
  ThreadTeam team(1);
  const auto name_of = [&](const std::string& part, const Operation& second,
                           int64_t step) -> std::string {
    const std::vector<OperationFile> files = {
        {.path = "1", .step = 1, .operations = {before}},
        {.path = "2", .step = step, .operations = {second}}};
    for (const Finding& finding :
         CheckOperations(files, precision::RecipeByName("bf16"), {}, team)) {
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

}  // namespace
}  // namespace isoloss::operations
