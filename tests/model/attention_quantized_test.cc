#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "isoloss/base/digest.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/bf16.h"
#include "isoloss/formats/quantize.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/scalar/rowwise.h"
#include "isoloss/kernels/targets.h"
#include "isoloss/model/attention_core.h"
#include "isoloss/model/graph.h"
#include "model/small_model.h"
#include "support/outside_recipes.h"

namespace isoloss::model::attention_quantized_test {
namespace {

using formats::Quantization;
using isoloss::test_support::OutsideRecipes;
using isoloss::test_support::RecipeFrom;
using isoloss::test_support::SmallBatch;
using isoloss::test_support::SmallConfig;
using isoloss::test_support::SmallModel;
using kernels::Contraction;
using kernels::Rounding;
using precision::AttentionPrecision;

constexpr size_t kHeads = 2;
constexpr size_t kWidth = 20;
constexpr size_t kValueWidth = 12;

Matrix<float> Random(size_t rows, size_t cols, uint64_t stream) {
  const CounterRng rng(17, stream);
  Matrix<float> m(rows, cols);
  for (size_t i = 0; i < m.size(); ++i) {
    m.data()[i] =
        formats::RoundToBf16(static_cast<float>(4 * rng.Uniform(i) - 2));
  }
  return m;
}

/// Everything that attention gives.
struct Results {
  explicit Results(size_t tokens)
      : out(tokens, kHeads * kValueWidth),
        dq(tokens, kHeads * kWidth),
        dk(tokens, kHeads * kWidth),
        dv(tokens, kHeads * kValueWidth) {}

  Matrix<float> out, dq, dk, dv;
};

bool SameBits(const Matrix<float>& a, const Matrix<float>& b) {
  return a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class QuantizedAttentionTest : public ::testing::Test {
 protected:
  AttentionInputs Inputs(Rounding rounding = Rounding::kFp32) const {
    return {.queries = {q_.view(), kHeads, kWidth, 0, kWidth},
            .keys = {k_.view(), kHeads, kWidth, 0, kWidth},
            .values = {v_.view(), kHeads, kValueWidth, 0, kValueWidth},
            .document_ends = ends_,
            .scale = 0.3f,
            .rounding = rounding,
            .key = {3, 4}};
  }
  HeadColumns<const float> Dout() const {
    return {dout_.view(), kHeads, kValueWidth, 0, kValueWidth};
  }
  Results Run(const AttentionPrecision& precision, Rounding rounding) {
    Results r(ends_.back());
    GemmQueue gemms(executor_);
    AttentionCore::Scratch scratch{executor_.memory()};
    AttentionCore attention(precision, "core", gemms, executor_, scratch);
    attention.Forward(Inputs(rounding),
                      {r.out.view(), kHeads, kValueWidth, 0, kValueWidth});
    attention.Backward(Inputs(rounding), Dout(),
                       {{r.dq.view(), kHeads, kWidth, 0, kWidth},
                        {r.dk.view(), kHeads, kWidth, 0, kWidth},
                        {r.dv.view(), kHeads, kValueWidth, 0, kValueWidth}});
    return r;
  }

  const std::vector<size_t> ends_ = {1, 1 + kQueryBlock, 40 + 3 * kQueryBlock};
  const Matrix<float> q_ = Random(ends_.back(), kHeads* kWidth, 1);
  const Matrix<float> k_ = Random(ends_.back(), kHeads* kWidth, 2);
  const Matrix<float> v_ = Random(ends_.back(), kHeads* kValueWidth, 3);
  const Matrix<float> dout_ = Random(ends_.back(), kHeads* kValueWidth, 4);
  Executor executor_{2};
};

// A cast of q to BF16, which it is in already; nothing else is described.
TEST_F(QuantizedAttentionTest, HasTheBitsOfAttentionWhereACastChangesNothing) {
  AttentionPrecision precision;
  precision.q = RecipeFrom(isoloss::test_support::kCutAttention).attention.p;
  for (const Rounding rounding : {Rounding::kFp32, Rounding::kBf16}) {
    const Results plain = Run({}, rounding);

    const Results cast = Run(precision, rounding);

    EXPECT_TRUE(SameBits(cast.out, plain.out));
    EXPECT_TRUE(SameBits(cast.dq, plain.dq));
    EXPECT_TRUE(SameBits(cast.dk, plain.dk));
    EXPECT_TRUE(SameBits(cast.dv, plain.dv));
  }
}

// ---- the definition, from formats::Quantize and scalar sums -----------------

Matrix<float> Copy(MatrixView<const float> x, bool turn) {
  Matrix<float> result(turn ? x.cols() : x.rows(), turn ? x.rows() : x.cols());
  for (size_t i = 0; i < x.rows(); ++i) {
    for (size_t j = 0; j < x.cols(); ++j) {
      (turn ? result(j, i) : result(i, j)) = x(i, j);
    }
  }
  return result;
}

/// One head of one document.
class Definition {
 public:
  Definition(const AttentionPrecision& precision, size_t tensor)
      : precision_(precision), tensor_(tensor) {}

  /// Rows of the operand, blocks along them or `down` the columns; scales are
  /// powers of two, so that it does not matter when they multiply.
  Matrix<float> Read(const std::optional<Quantization>& quantization,
                     MatrixView<const float> x, bool down,
                     const std::string& place) const {
    const Matrix<float> rows = Copy(x, down);
    if (!quantization) return Copy(rows.cview(), down);
    const uint64_t common = CounterRng(3, StreamId("quantize/core." + place))
                                .Bits(uint64_t{4} << 24);
    const formats::TensorState state = {
        .seed = 3, .stream = CounterRng(3, common).Bits(tensor_)};
    const Matrix<float> read = formats::Dequantize(
        formats::Quantize(rows.cview(), *quantization, state), *quantization);
    return Copy(read.cview(), down);
  }

  static Matrix<float> Product(const Matrix<float>& a, Contraction a_along,
                               const Matrix<float>& b, Contraction b_along) {
    const kernels::Operand left = {a.cview(), a_along};
    const kernels::Operand right = {b.cview(), b_along};
    Matrix<float> c(left.extent(), right.extent());
    kernels::GemmScalar({.a = left, .b = right, .c = c.view()});
    return c;
  }

  struct Head {
    Matrix<float> out, dq, dk, dv;
  };
  Head Compute(MatrixView<const float> q, MatrixView<const float> k,
               MatrixView<const float> v, MatrixView<const float> dout,
               float scale) const {
    constexpr auto kAlong = Contraction::kColumns;
    constexpr auto kDown = Contraction::kRows;
    const AttentionPrecision& f = precision_;
    Matrix<float> p =
        Product(Read(f.q, q, false, "scores/fprop/left"), kAlong,
                Read(f.k, k, false, "scores/fprop/right"), kAlong);
    kernels::scalar::CausalSoftmaxForward(1, p.view(), scale);
    const Matrix<float> read = Read(f.p, p.cview(), false, "values/fprop/left");
    Head head;
    head.out =
        Product(read, kAlong, Read(f.v, v, true, "values/fprop/right"), kDown);
    head.dv = Product(Read(f.p, p.cview(), true, "values/wgrad/right"), kDown,
                      Read(f.d_out, dout, true, "values/wgrad/left"), kDown);
    Matrix<float> ds =
        Product(Read(f.d_out, dout, false, "values/dgrad/left"), kAlong,
                Read(f.v, v, false, "values/dgrad/right"), kAlong);
    for (size_t i = 0; i < ds.rows(); ++i) {
      const float mean =
          kernels::RowDot({ds.Row(i), i + 1}, {read.Row(i), i + 1});
      for (size_t j = 0; j < ds.cols(); ++j) {
        ds(i, j) = j > i ? 0.0f : scale * (p(i, j) * (ds(i, j) - mean));
      }
    }
    head.dq = Product(Read(f.d_scores, ds.cview(), false, "scores/dgrad/left"),
                      kAlong, Read(f.k, k, true, "scores/dgrad/right"), kDown);
    head.dk = Product(Read(f.d_scores, ds.cview(), true, "scores/wgrad/left"),
                      kDown, Read(f.q, q, true, "scores/wgrad/right"), kDown);
    return head;
  }

 private:
  const AttentionPrecision& precision_;
  const size_t tensor_;
};

void ExpectAt(const Matrix<float>& all, size_t begin, size_t head,
              const Matrix<float>& expected, const char* what) {
  for (size_t i = 0; i < expected.rows(); ++i) {
    for (size_t j = 0; j < expected.cols(); ++j) {
      ASSERT_EQ(all(begin + i, head * expected.cols() + j), expected(i, j))
          << what << " of head " << head << ", token " << begin + i
          << ", column " << j;
    }
  }
}

TEST_F(QuantizedAttentionTest, IsItsDefinition) {
  Quantization random{&formats::FormatByName("e4m3"), formats::ScaleRule::kTe};
  random.scale_format = formats::ScaleFormat::kPow2;
  random.cell = {16, 24};
  random.rounding = formats::RoundingMode::kStochastic;
  random.random_bits = 8;
  AttentionPrecision stochastic;
  for (const auto& [key, operand] : precision::kAttentionOperands) {
    stochastic.*operand = random;
  }
  AttentionPrecision whole = stochastic;
  for (const auto& [key, operand] : precision::kAttentionOperands) {
    (whole.*operand)->cell = {0, 0};
  }
  for (const AttentionPrecision& precision :
       {RecipeFrom(isoloss::test_support::kMxAttention).attention, stochastic,
        whole}) {
    const Results got = Run(precision, Rounding::kFp32);
    size_t begin = 0;
    for (const size_t end : ends_) {
      for (size_t h = 0; h < kHeads; ++h) {
        const auto of = [&](const Matrix<float>& x, size_t width) {
          return x.cview().Rows(begin, end - begin).Cols(h * width, width);
        };
        const Definition::Head head =
            Definition(precision, begin * kHeads + h)
                .Compute(of(q_, kWidth), of(k_, kWidth), of(v_, kValueWidth),
                         of(dout_, kValueWidth), Inputs().scale);
        ExpectAt(got.out, begin, h, head.out, "out");
        ExpectAt(got.dq, begin, h, head.dq, "dq");
        ExpectAt(got.dk, begin, h, head.dk, "dk");
        ExpectAt(got.dv, begin, h, head.dv, "dv");
      }
      begin = end;
    }
  }
}

// ---- whoever computes it ----------------------------------------------------

/// Gains of 1 have the bits that formats make of them.
void SpreadGains(SmallModel& model) {
  for (Parameter& parameter : model.weights.parameters()) {
    if (parameter.shape.size() > 1) continue;
    for (size_t i = 0; i < parameter.values.size(); ++i) {
      parameter.values.data()[i] = 0.7f + 0.037f * static_cast<float>(i);
    }
  }
  model.transformer.SetStep({9, 2});
  model.Load();
}

expert_parallel::MeshConfig Ranks(size_t ranks) {
  return {.topology = {.experts = SmallConfig().num_experts, .ranks = ranks},
          .options = {}};
}

/// Digest of loss and all gradients.
uint64_t DigestOfStep(const precision::Recipe& recipe, size_t ranks,
                      int threads) {
  SmallModel model(SmallConfig(), Ranks(ranks), recipe, threads);
  SpreadGains(model);
  SmallBatch batch(SmallConfig(), {37, 80, 51});
  batch.sequence_ends = {117, 168};
  const double loss = model.Step(batch);
  const Transformer& transformer = model.transformer;
  EXPECT_EQ(transformer.gemms(), transformer.gemms_per_step());
  EXPECT_EQ(transformer.quantized_gemms(),
            transformer.quantized_gemms_per_step());
  EXPECT_GT(transformer.quantized_gemms(), 0);
  Digest digest;
  digest.Update(&loss, sizeof(loss));
  const uint64_t gradients = model.gradients.Digest();
  digest.Update(&gradients, sizeof(gradients));
  return digest.Value();
}

TEST(OutsideRecipe, HasBitsThatNeitherThreadsNorRanksNorTargetsChange) {
  for (const precision::Recipe& recipe : OutsideRecipes()) {
    const uint64_t expected = DigestOfStep(recipe, 1, 1);
    EXPECT_EQ(DigestOfStep(recipe, 1, 3), expected) << recipe.name;
    EXPECT_EQ(DigestOfStep(recipe, 2, 2), expected) << recipe.name;
    EXPECT_EQ(DigestOfStep(recipe, 6, 1), expected) << recipe.name;
    kernels::ForceTarget("scalar");
    EXPECT_EQ(DigestOfStep(recipe, 1, 1), expected) << recipe.name;
    kernels::ForceTarget("");
  }
}

TEST(OutsideRecipe, CountsItsProducts) {
  const auto count = [](std::string_view text) {
    const SmallModel model(SmallConfig(), Ranks(1), RecipeFrom(text));
    return std::pair(model.transformer.quantized_gemms_per_step(),
                     model.transformer.gemms_per_step());
  };
  const SmallModel bf16(SmallConfig(), "bf16");
  const int64_t all = bf16.transformer.gemms_per_step();

  // Two layers of six products. Nine norms of y, dx and dw: gains multiply in
  // the first two.
  EXPECT_EQ(count(isoloss::test_support::kTeAttention),
            std::pair(12L, all + 12));
  EXPECT_EQ(count(isoloss::test_support::kFa3Attention),
            std::pair(4L, all + 12));
  EXPECT_EQ(count(isoloss::test_support::kCutAttention),
            std::pair(2L, all + 12));
  EXPECT_EQ(count(isoloss::test_support::kMxGains), std::pair(18L, all + 27));
}

}  // namespace
}  // namespace isoloss::model::attention_quantized_test
