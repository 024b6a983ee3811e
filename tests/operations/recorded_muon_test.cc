// Steps of Muon.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "isoloss/formats/bf16.h"
#include "operations/checks.h"
#include "operations/samples.h"

namespace isoloss::operations::recorded_muon_test {
namespace {

using formats::RoundToBf16;
using test_support::Random;

struct MuonMistakes {
  size_t rows = 24;
  size_t cols = 16;
  int steps = 5;
  double a = 3.4445, b = -4.775, c = 2.0315;
  bool nesterov = true;
  bool lerps = true;
  bool scales = true;
  double decay = 0.5;  ///< 0.5 is recorded
  double lr = 0.1;     ///< 0.1 is recorded
  float clip = 1.0f;
  size_t shards = 1;
  bool is_eager = false;  ///< each operation is rounded, and no mistake
};

using Rows = std::vector<std::vector<float>>;

/// The text of the iteration on rows of a matrix that is not taller than wide,
/// with FP32 sums in ascending order.
void Iterate(const MuonMistakes& with, Rows& x) {
  const auto r = [](double v) { return RoundToBf16(static_cast<float>(v)); };
  const auto rr = [&](double v) {
    return with.is_eager ? static_cast<double>(r(v)) : v;
  };
  double squares = 0;
  for (auto& row : x) {
    for (float& v : row) {
      v = RoundToBf16(v);
      squares += static_cast<double>(v) * static_cast<double>(v);
    }
  }
  const float norm = r(std::sqrt(squares));
  for (auto& row : x) {
    for (float& v : row) v = RoundToBf16(v / norm);
  }
  const size_t n = x.size();
  const size_t m = x[0].size();
  const auto product = [](size_t depth, const auto& left, const auto& right) {
    float sum = 0;
    for (size_t k = 0; k < depth; ++k) sum += left(k) * right(k);
    return static_cast<double>(sum);
  };
  for (int step = 0; step < with.steps; ++step) {
    Rows gram(n, std::vector<float>(n));
    Rows both = gram;
    Rows next = x;
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        gram[i][j] = r(product(
            m, [&](size_t k) { return x[i][k]; },
            [&](size_t k) { return x[j][k]; }));
      }
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        const double sum = product(
            n,
            [&](size_t k) {
              return with.is_eager ? r(with.c * static_cast<double>(gram[i][k]))
                                   : gram[i][k];
            },
            [&](size_t k) { return gram[k][j]; });
        both[i][j] = r(rr(with.b * static_cast<double>(gram[i][j])) +
                       (with.is_eager ? rr(sum) : with.c * sum));
      }
    }
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < m; ++j) {
        next[i][j] = r(rr(with.a * static_cast<double>(x[i][j])) +
                       rr(product(
                           n, [&](size_t k) { return both[i][k]; },
                           [&](size_t k) { return x[k][j]; })));
      }
    }
    x = next;
  }
}

/// As torch.optim.Muon with weights in FP32, or as Jordan's.
Operation Muon(const MuonMistakes& with = {}) {
  Operation muon = {.type = "muon", .module = "layers.0.wq.weight"};
  const std::vector<size_t> extent = {with.rows, with.cols};
  muon.numbers = {{"lr", 0.1},     {"momentum", 0.95}, {"weight_decay", 0.5},
                  {"ns_steps", 5}, {"nesterov", 1},    {"eps", 1e-7}};
  muon.texts = {{"momentum_rule", "lerp"}, {"scale_rule", "original"}};
  muon.floats["coefficients"] = {.extent = {1, 3},
                                 .values = {3.4445f, -4.775f, 2.0315f},
                                 .type = "float32"};
  muon.floats["parameter_before"] = Random(extent, "p", "float32");
  muon.floats["gradient"] = Random(extent, "g", "float32", 0.1);
  muon.floats["momentum_before"] = Random(extent, "m", "float32", 0.1);
  Floats after = muon.floats["momentum_before"];
  Floats update = after;
  for (size_t i = 0; i < after.values.size(); ++i) {
    const float g = muon.floats["gradient"].values[i] * with.clip;
    float& m = after.values[i];
    m = with.lerps ? m + static_cast<float>(1 - 0.95) * (g - m) : m * 0.95f + g;
    update.values[i] =
        !with.nesterov ? m : m - (m - g) * static_cast<float>(1 - 0.95);
  }
  muon.floats["momentum_after"] = after;
  // Shards are of rows; a matrix that is taller than wide is transposed.
  Floats parameter = muon.floats["parameter_before"];
  const size_t count = with.rows / with.shards;
  const bool is_tall = count > with.cols;
  const double scale =
      with.scales ? std::sqrt(std::max(1.0, static_cast<double>(with.rows) /
                                                static_cast<double>(with.cols)))
                  : 1.0;
  for (size_t first = 0; first < with.rows; first += count) {
    Rows x(is_tall ? with.cols : count,
           std::vector<float>(is_tall ? count : with.cols));
    const auto at = [&](size_t r, size_t c) -> float& {
      return is_tall ? x[c][r] : x[r][c];
    };
    for (size_t r = 0; r < count; ++r) {
      for (size_t c = 0; c < with.cols; ++c) {
        at(r, c) = update.values[(first + r) * with.cols + c];
      }
    }
    Iterate(with, x);
    for (size_t r = 0; r < count; ++r) {
      for (size_t c = 0; c < with.cols; ++c) {
        float& p = parameter.values[(first + r) * with.cols + c];
        p = p * static_cast<float>(1 - with.lr * with.decay) -
            static_cast<float>(with.lr * scale) * at(r, c);
      }
    }
  }
  muon.floats["parameter_after"] = parameter;
  return muon;
}

TEST(MuonCheck, RightStepsAreRight) {
  for (const bool is_eager : {false, true}) {
    ExpectRight({Muon({.is_eager = is_eager})});
    ExpectRight({Muon({.rows = 12, .cols = 20, .is_eager = is_eager})});
  }
  Operation scaled = Muon({.rows = 20, .cols = 12});
  for (const auto& [rule, scale] :
       {std::pair("match_rms_adamw", 0.2 * std::sqrt(20.0)),
        std::pair("unclamped", std::sqrt(20.0 / 12.0)),
        std::pair("spectral", std::sqrt(20.0)), std::pair("none", 1.0)}) {
    scaled.texts["scale_rule"] = rule;
    scaled.numbers["scale"] = std::sqrt(20.0 / 12.0) / scale;
    ExpectRight({scaled});
  }
  // What is not declared may be any usual way.
  Operation unknown = Muon();
  unknown.texts.clear();
  unknown.numbers.erase("nesterov");
  ExpectRight({unknown});
}

TEST(MuonCheck, NamesEachPlantedMistake) {
  const char* p = "parameter_after";
  ExpectNamed({Muon({.steps = 4})}, p, "ns_step_fewer");
  ExpectNamed({Muon({.steps = 6})}, p, "ns_step_more");
  ExpectNamed({Muon({.a = 1.5, .b = -0.5, .c = 0})}, p,
              "ns_coefficients_classic");
  ExpectNamed({Muon({.nesterov = false})}, p, "nesterov_missing");
  ExpectNamed({Muon({.scales = false})}, p, "scale_missing");
  ExpectNamed({Muon({.decay = 0})}, p, "decay_missing");
  ExpectNamed({Muon({.decay = 5})}, p, "decay_without_lr");
  ExpectNamed({Muon({.lr = 0.05})}, p, "lr_off");
  ExpectNamed({Muon({.shards = 2, .is_eager = true})}, p, "ns_per_shard");
  ExpectNamed({Muon({.clip = 0.5f})}, p, "gradient_scaled");
  ExpectNamed({Muon({.clip = 0.5f})}, "momentum_after", "gradient_scaled");
  ExpectNamed({Muon({.lerps = false})}, "momentum_after", "momentum_sum");
  Operation muon = Muon();
  muon.floats["parameter_after"] = muon.floats["parameter_before"];
  ExpectNamed({muon}, p, "not_updated");
}

TEST(MuonCheck, HoldsTheMomentumAgainstTheStepBefore) {
  const Operation before = Muon();
  Operation after = Muon();
  after.floats["parameter_before"] = before.floats.at("parameter_after");
  Executor executor(1);
  const std::vector<Finding> findings =
      CheckOperations({{.path = "1", .step = 1, .operations = {before}},
                       {.path = "2", .step = 2, .operations = {after}}},
                      precision::RecipeByName("bf16"), {}, executor);
  EXPECT_TRUE(Part(findings, "parameter_before").is_right());
  EXPECT_EQ(Part(findings, "momentum_before").explanation->name,
            "update_lost_between_steps");
}

TEST(MuonCheck, RefusesWhatNoOptimizerCanHave) {
  const auto refuses = [](const auto& alter) {
    Operation muon = Muon();
    alter(muon);
    EXPECT_THROW(Check({muon}), Error);
  };
  refuses([](Operation& muon) { muon.numbers["ns_steps"] = 1000; });
  refuses([](Operation& muon) { muon.numbers["momentum"] = 1; });
  refuses([](Operation& muon) { muon.texts["scale_rule"] = "large"; });
  refuses([](Operation& muon) { muon.floats.erase("coefficients"); });
  refuses([](Operation& muon) { muon.floats["coefficients"].extent = {3, 1}; });
}

}  // namespace
}  // namespace isoloss::operations::recorded_muon_test
