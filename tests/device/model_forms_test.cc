// On a device the gradient of the embedding has the bits of the host's, and so
// has a long sum of squares.
#include "isoloss/device/model_forms.h"

#include <gtest/gtest.h>

#include <vector>

#include "executors.h"
#include "isoloss/base/rng.h"

namespace isoloss::device::model_forms_test {
namespace {

constexpr size_t kVocab = 23;
constexpr size_t kWidth = 37;

/// Returns the table after a batch whose sequences have these lengths.
Matrix<float> Table(const std::vector<size_t>& lengths, Executor& executor) {
  const CounterRng rng(4, 0);
  std::vector<int32_t> tokens;
  std::vector<size_t> ends;
  for (const size_t length : lengths) {
    for (size_t i = 0; i < length; ++i) {
      // Half of the tokens are the first of the sequence.
      const size_t t = tokens.size();
      const bool common = i > 0 && rng.Bits(t) % 2 == 0;
      tokens.push_back(common ? tokens[t - i]
                              : static_cast<int32_t>(rng.Below(t, kVocab)));
    }
    ends.push_back(tokens.size());
  }
  Matrix<float> dx(tokens.size(), kWidth);
  for (size_t i = 0; i < dx.size(); ++i) {
    dx.data()[i] = static_cast<float>(rng.Uniform(1000 + i) - 0.5);
  }
  Matrix<float> table(kVocab, kWidth);
  for (size_t i = 0; i < table.size(); ++i) {
    table.data()[i] = static_cast<float>(i);
  }
  Matrix<float> dx_there(executor.memory());
  Matrix<float> table_there(executor.memory());
  dx_there.CopyFrom(dx);
  table_there.CopyFrom(table);
  kernels::AddEmbeddingGradient(tokens, ends, dx_there.view(),
                                table_there.view(), executor);
  table.CopyFrom(table_there);
  return table;
}

class ModelFormsTest : public testing::TestWithParam<NamedExecutor> {};

TEST_P(ModelFormsTest, AddTheGradientOfTheEmbedding) {
  Executor host(2);
  for (const std::vector<size_t>& lengths :
       {std::vector<size_t>{1}, {40}, {5, 7, 1}, {9, 9, 9, 9, 9, 9, 9}}) {
    const Matrix<float> expected = Table(lengths, host);
    const Matrix<float> found = Table(lengths, *GetParam().executor);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(found.data()[i], expected.data()[i]) << i;
    }
  }
}

/// Their leaves are folded in several launches.
TEST_P(ModelFormsTest, AddManySquares) {
  const CounterRng rng(5, 0);
  Matrix<float> values(1, 1'200'000);
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = static_cast<float>(rng.Uniform(i) - 0.5);
  }
  Executor& device = *GetParam().executor;
  Matrix<float> there(device.memory());
  there.CopyFrom(values);
  Executor host(2);
  EXPECT_EQ(kernels::SumOfSquares({there.data(), there.size()}, device),
            kernels::SumOfSquares({values.data(), values.size()}, host));
}

INSTANTIATE_TEST_SUITE_P(Devices, ModelFormsTest,
                         testing::ValuesIn(DeviceExecutors()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace isoloss::device::model_forms_test
