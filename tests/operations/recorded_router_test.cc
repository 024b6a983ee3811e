// Routers of a trainer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>

#include "isoloss/base/error.h"
#include "operations/checks.h"
#include "operations/samples.h"

namespace isoloss::operations::recorded_router_test {
namespace {

using test_support::Random;
using test_support::Zeros;

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

TEST(RouterCheck, NamesARoundingOfEachStep) {
  Operation router = Router();
  for (const char* name : {"scores", "weights"}) {
    router.floats[name].type = "bfloat16";
    for (float& value : router.floats[name].values) {
      value = formats::RoundToBf16(value);
    }
  }
  // The choice is of the rounded scores.
  router.floats.erase("bias");
  const auto& scores = router.Find("scores")->values;
  auto& weights = router.floats["weights"].values;
  for (size_t t = 0; 2 * t < weights.size(); ++t) {
    const auto score = [&](size_t i) {
      return scores[8 * t + static_cast<size_t>(router.integers["expert_ids"]
                                                    .values[2 * t + i])];
    };
    const float sum = formats::RoundToBf16(score(0) + score(1));
    for (size_t i = 0; i < 2; ++i) {
      weights[2 * t + i] =
          formats::RoundToBf16(formats::RoundToBf16(score(i) / sum) * 2.5f);
    }
  }

  ExpectNamed({router}, "weights", "normalized_in_bf16");
}

TEST(RouterCheck, NamesTheFactorOfOneToken) {
  Operation router = Router();
  for (size_t i = 6; i < 8; ++i) router.floats["weights"].values[i] *= 2.0f;

  const auto findings = Check({router});

  ExpectNamed(findings, "weights", "weights_scaled");
  EXPECT_EQ(Part(findings, "weights").explanation->sentence,
            "weights of token 3 were 2 times what scores, `normalize` and "
            "`scale` give, as by a scale of 5");
}

TEST(RouterCheck, NamesWhatIsOneStepOld) {
  const Operation before = Router();
  Operation after = before;
  auto& logits = after.floats["logits"].values;
  std::ranges::reverse(logits);
  const auto name_of = [&](const std::string& part, const Operation& second) {
    Executor executor(1);
    const auto findings =
        CheckOperations({{.path = "1", .step = 1, .operations = {before}},
                         {.path = "2", .step = 2, .operations = {second}}},
                        precision::RecipeByName("bf16"), {}, executor);
    std::string name = "right";
    for (const Finding& finding : findings) {
      if (finding.file == 1 && finding.part == part && finding.explanation) {
        name = finding.explanation->name;
      }
    }
    return name;
  };
  EXPECT_EQ(name_of("scores", after), "logits_stale");
  std::ranges::reverse(after.floats["scores"].values);
  EXPECT_EQ(name_of("scores", after), "right");
  EXPECT_EQ(name_of("choice", after), "scores_stale");
  EXPECT_EQ(name_of("weights", after), "weights_stale");
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

TEST(RouterCheck, NamesTheFactorOfATerm) {
  for (const double factor : {0.72, 1.0 / 3, -1.0}) {
    Operation router = Router();
    for (float& weight : router.floats["weights"].values) {
      weight = static_cast<float>(factor * static_cast<double>(weight));
    }
    ExpectNamed({router}, "weights", "weights_scaled");
  }
  Operation router = Router();
  for (float& score : router.floats["scores"].values) score *= 0.8f;
  ExpectNamed({router}, "scores", "scores_scaled");
  for (const bool softmax : {false, true}) {
    router = Router({.softmax = softmax});
    if (softmax) router.texts["score_function"] = "softmax";
    // Divided by a temperature of 2 after they were recorded.
    for (float& logit : router.floats["logits"].values) logit *= 2.0f;
    ExpectNamed({router}, "scores", "logits_scaled");
  }
}

TEST(RouterCheck, NamesTheBiasThatExpertsWereChosenBy) {
  Operation before = Router();
  std::ranges::reverse(before.floats["bias"].values);
  Operation chosen_before = Router();
  Floats& bias = chosen_before.floats["bias"];
  std::ranges::reverse(bias.values);
  Executor executor(1);
  // The choice is Router's, by its own bias: the one before, or negated.
  const std::vector<OperationFile> files = {
      {.path = "1", .step = 1, .operations = {Router()}},
      {.path = "2", .step = 2, .operations = {chosen_before}}};
  for (const Finding& finding :
       CheckOperations(files, precision::RecipeByName("bf16"), {}, executor)) {
    if (finding.file == 0 || finding.part != "choice") continue;
    ASSERT_TRUE(finding.explanation);
    EXPECT_EQ(finding.explanation->name, "bias_stale");
    EXPECT_EQ(finding.explanation->other, 0);
    EXPECT_NE(finding.remark.find(" has experts "), std::string::npos)
        << finding.remark;
  }
  Operation negated = Router();
  for (float& b : negated.floats["bias"].values) b = -b;
  ExpectNamed({negated}, "choice", "bias_negated");
}

TEST(RouterCheck, SlotsOfATokenMayStandInAnyOrder) {
  Operation router = Router();
  std::vector<int64_t>& ids = router.integers["expert_ids"].values;
  std::vector<float>& weights = router.floats["weights"].values;
  for (size_t i = 0; i < ids.size(); i += 2) std::swap(ids[i], ids[i + 1]);
  ExpectNamed({router}, "weights", "slots_reversed");
  for (size_t i = 0; i < ids.size(); i += 2) {
    std::swap(weights[i], weights[i + 1]);
  }
  ExpectRight({router});
}

TEST(RouterCheck, NamesTokensWhoseRowsStandElsewhere) {
  for (const char* part : {"scores", "weights"}) {
    Operation router = Router();
    Floats& floats = router.floats[part];
    const size_t width = floats.extent[1];
    std::swap_ranges(floats.values.begin(),
                     floats.values.begin() + static_cast<ptrdiff_t>(width),
                     floats.values.begin() + static_cast<ptrdiff_t>(5 * width));
    const std::vector<Finding> findings = Check({router});
    const auto found = std::ranges::find(findings, part, &Finding::part);
    ASSERT_TRUE(found->explanation) << part;
    EXPECT_EQ(found->explanation->name, "wrong_rows");
    EXPECT_EQ(
        found->explanation->sentence,
        std::string("in tokens 0, 5 stand the ") + part + " of tokens 5, 0");
    EXPECT_EQ(found->places,
              "2 of 64 tokens have others, in every element: "
              "0, 5.");
  }
}

TEST(RouterCheck, SortsNothingByNan) {
  Operation router = Router();
  router.floats.erase("logits");
  for (size_t i = 0; i < 64; i += 3) {
    router.floats["scores"].values[i] = std::nanf("");
  }
  EXPECT_FALSE(Check({router}).empty());
}

}  // namespace
}  // namespace isoloss::operations::recorded_router_test
