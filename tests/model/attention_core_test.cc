#include "isoloss/model/attention_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "isoloss/base/rng.h"

namespace isoloss::model::attention_core_test {
namespace {

constexpr size_t kHeads = 2;
constexpr size_t kKeyWidth = 5;
constexpr size_t kValueWidth = 3;
/// Values and keys lie in one matrix, as in MLA: per head [keys, values].
constexpr size_t kStride = kKeyWidth + kValueWidth;

Matrix<float> Uniform(size_t rows, size_t cols, uint64_t stream) {
  const CounterRng rng(11, stream);
  Matrix<float> m(rows, cols);
  for (size_t i = 0; i < m.size(); ++i) {
    m.data()[i] = static_cast<float>(2 * rng.Uniform(i) - 1);
  }
  return m;
}

/// Attention and its gradients in FP64, written as the formulas are.
struct Fp64Attention {
  Fp64Attention(const AttentionInputs& in, const HeadColumns<const float>& dout)
      : out(in.queries.matrix.rows(), kHeads * kValueWidth),
        dqueries(in.queries.matrix.rows(), kHeads * kKeyWidth),
        dkeys(in.queries.matrix.rows(), kHeads * kKeyWidth),
        dvalues(in.queries.matrix.rows(), kHeads * kValueWidth) {
    size_t begin = 0;
    for (const size_t end : in.document_ends) {
      for (size_t head = 0; head < kHeads; ++head) {
        for (size_t i = begin; i < end; ++i) Query(in, dout, head, begin, i);
      }
      begin = end;
    }
  }

  void Query(const AttentionInputs& in, const HeadColumns<const float>& dout,
             size_t head, size_t begin, size_t i) {
    const auto at = [&](const HeadColumns<const float>& h, size_t t, size_t c) {
      return static_cast<double>(h.Of(head, t, 1)(0, c));
    };
    const double scale = static_cast<double>(in.scale);
    std::vector<double> p;
    double sum = 0.0;
    for (size_t j = begin; j <= i; ++j) {
      double dot = 0.0;
      for (size_t c = 0; c < kKeyWidth; ++c) {
        dot += at(in.queries, i, c) * at(in.keys, j, c);
      }
      p.push_back(std::exp(scale * dot));
      sum += p.back();
    }
    std::vector<double> dp(p.size(), 0.0);
    double mean = 0.0;
    for (size_t j = begin; j <= i; ++j) {
      double& pj = p[j - begin];
      pj /= sum;
      for (size_t c = 0; c < kValueWidth; ++c) {
        out(i, head * kValueWidth + c) += pj * at(in.values, j, c);
        dvalues(j, head * kValueWidth + c) += pj * at(dout, i, c);
        dp[j - begin] += at(dout, i, c) * at(in.values, j, c);
      }
      mean += pj * dp[j - begin];
    }
    for (size_t j = begin; j <= i; ++j) {
      const double ds = scale * p[j - begin] * (dp[j - begin] - mean);
      for (size_t c = 0; c < kKeyWidth; ++c) {
        dqueries(i, head * kKeyWidth + c) += ds * at(in.keys, j, c);
        dkeys(j, head * kKeyWidth + c) += ds * at(in.queries, i, c);
      }
    }
  }

  Matrix<double> out, dqueries, dkeys, dvalues;
};

double LargestDifference(const HeadColumns<const float>& a,
                         const Matrix<double>& b) {
  double largest = 0.0;
  for (size_t head = 0; head < kHeads; ++head) {
    for (size_t t = 0; t < b.rows(); ++t) {
      for (size_t c = 0; c < a.width; ++c) {
        const double value = static_cast<double>(a.Of(head, t, 1)(0, c));
        largest =
            std::max(largest, std::fabs(value - b(t, head * a.width + c)));
      }
    }
  }
  return largest;
}

/// Documents of one token, of a whole block, of a block and one token, and of
/// several blocks.
class AttentionTest : public ::testing::Test {
 protected:
  AttentionInputs Inputs() const {
    return {.queries = {queries_.view(), kHeads, kKeyWidth, 0, kKeyWidth},
            .keys = {keys_values_.view(), kHeads, kStride, 0, kKeyWidth},
            .values = {keys_values_.view(), kHeads, kStride, kKeyWidth,
                       kValueWidth},
            .document_ends = ends_,
            .scale = 0.7f};
  }
  HeadColumns<const float> Dout() const {
    return {dout_.view(), kHeads, kValueWidth, 0, kValueWidth};
  }

  const std::vector<size_t> ends_ = {1, 1 + kQueryBlock, 2 + 2 * kQueryBlock,
                                     10 + 5 * kQueryBlock};
  const size_t tokens_ = ends_.back();
  const Matrix<float> queries_ = Uniform(tokens_, kHeads* kKeyWidth, 1);
  const Matrix<float> keys_values_ = Uniform(tokens_, kHeads* kStride, 2);
  const Matrix<float> dout_ = Uniform(tokens_, kHeads* kValueWidth, 3);
  Executor executor_{2};
  GemmQueue gemms_{executor_};
  AttentionCore::Scratch scratch_{executor_.memory()};
  AttentionCore attention_{{}, "core", gemms_, executor_, scratch_};
};

TEST_F(AttentionTest, MatchesFp64OverBlockBoundaries) {
  Matrix<float> out(tokens_, kHeads * kValueWidth);
  Matrix<float> dqueries(tokens_, kHeads * kKeyWidth);
  Matrix<float> dkeys_values(tokens_, kHeads * kStride);
  const HeadColumns<float> out_heads{out.view(), kHeads, kValueWidth, 0,
                                     kValueWidth};
  const HeadColumns<float> dq{dqueries.view(), kHeads, kKeyWidth, 0, kKeyWidth};
  const HeadColumns<float> dk{dkeys_values.view(), kHeads, kStride, 0,
                              kKeyWidth};
  const HeadColumns<float> dv{dkeys_values.view(), kHeads, kStride, kKeyWidth,
                              kValueWidth};

  attention_.Forward(Inputs(), out_heads);
  attention_.Backward(Inputs(), Dout(), {dq, dk, dv});

  // Inputs are at most 1. An output averages values: its error is that of p
  // (a few ulp, relative) and of the chain, below n * 2^-24 for n terms. A
  // gradient of keys or values adds up to n such terms of size at most 1, where
  // sums stay below about sqrt(n): n * 2^-24 * 4 bounds them all.
  const Fp64Attention exact(Inputs(), Dout());
  const double limit = 4.0 * static_cast<double>(tokens_) * 0x1p-24;
  const auto read = [](const HeadColumns<float>& h) {
    return HeadColumns<const float>{h.matrix, h.heads, h.stride, h.offset,
                                    h.width};
  };
  EXPECT_LE(LargestDifference(read(out_heads), exact.out), limit);
  EXPECT_LE(LargestDifference(read(dq), exact.dqueries), limit);
  EXPECT_LE(LargestDifference(read(dk), exact.dkeys), limit);
  EXPECT_LE(LargestDifference(read(dv), exact.dvalues), limit);
}

TEST_F(AttentionTest, FirstTokenOfADocumentReturnsItsOwnValue) {
  Matrix<float> out(tokens_, kHeads * kValueWidth);

  attention_.Forward(Inputs(),
                     {out.view(), kHeads, kValueWidth, 0, kValueWidth});

  size_t begin = 0;
  for (const size_t end : ends_) {
    for (size_t head = 0; head < kHeads; ++head) {
      for (size_t c = 0; c < kValueWidth; ++c) {
        EXPECT_EQ(out(begin, head * kValueWidth + c),
                  keys_values_(begin, head * kStride + kKeyWidth + c));
      }
    }
    begin = end;
  }
}

}  // namespace
}  // namespace isoloss::model::attention_core_test
