// Matrices go from one memory to another, and the host gets what it reads and
// changes.
#include "isoloss/base/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "executors.h"
#include "isoloss/base/matrix.h"
#include "isoloss/model/parameters.h"

namespace isoloss::device::memory_test {
namespace {

using testing::ElementsAre;

Matrix<int32_t> Counting(size_t rows, size_t cols) {
  Matrix<int32_t> matrix(rows, cols);
  for (size_t i = 0; i < matrix.size(); ++i) {
    matrix.data()[i] = static_cast<int32_t>(i);
  }
  return matrix;
}

std::vector<int32_t> Elements(const Matrix<int32_t>& matrix) {
  Matrix<int32_t> copy;
  copy.CopyFrom(matrix);
  return {copy.data(), copy.data() + copy.size()};
}

class MemoryTest : public testing::Test {
 protected:
  const std::vector<NamedExecutor> devices_ = DeviceExecutors();
  Memory& first_ = devices_.front().executor->memory();
  Memory& last_ = devices_.back().executor->memory();
};

TEST_F(MemoryTest, MatricesAreCopiedBetweenMemories) {
  Matrix<int32_t> there(first_);
  there.CopyFrom(Counting(2, 3));
  EXPECT_THAT(Elements(there), ElementsAre(0, 1, 2, 3, 4, 5));

  Matrix<int32_t> same(first_);
  same.CopyFrom(there);
  EXPECT_THAT(Elements(same), ElementsAre(0, 1, 2, 3, 4, 5));

  Matrix<int32_t> elsewhere(last_);
  elsewhere.CopyFrom(same);
  EXPECT_THAT(Elements(elsewhere), ElementsAre(0, 1, 2, 3, 4, 5));

  elsewhere.CopyFrom(Matrix<int32_t>(0, 3));
  EXPECT_EQ(elsewhere.size(), 0u);
}

TEST_F(MemoryTest, TheHostReadsCopiesOfRows) {
  Matrix<int32_t> there(first_);
  there.CopyFrom(Counting(3, 4));
  const HostRows<int32_t> all(there.cview(), first_);
  const HostRows<int32_t> window(there.cview().Rows(1, 2).Cols(1, 2), first_);
  const HostRows<int32_t> none(there.cview().Rows(0, 0), first_);

  EXPECT_EQ(all.view()(2, 3), 11);
  EXPECT_EQ(window.view()(0, 0), 5);
  EXPECT_EQ(window.view()(1, 1), 10);
  EXPECT_TRUE(none.view().empty());
}

TEST_F(MemoryTest, TheHostChangesACopyThatGoesBack) {
  Matrix<int32_t> here = Counting(1, 2);
  Matrix<int32_t> there(first_);
  there.CopyFrom(here);
  const auto add = [](MatrixView<int32_t> values) { values(0, 1) += 7; };
  EditOnHost(here, add);
  EditOnHost(there, add);
  EXPECT_THAT(Elements(here), ElementsAre(0, 8));
  EXPECT_THAT(Elements(there), ElementsAre(0, 8));
}

TEST_F(MemoryTest, ParametersHaveTheSameValuesEverywhere) {
  const model::ModelConfig config;
  model::ParameterSet here(config);
  model::ParameterSet there(config, first_);
  EXPECT_EQ(there.Digest(), here.Digest());
  for (model::ParameterSet* set : {&here, &there}) {
    model::InitializeParameters(/*seed=*/3, *set);
    model::EditOnHost(*set, [](model::ParameterSet& parameters) {
      parameters.ByName("norm.weight").values(0, 1) = 0.5f;
    });
  }
  EXPECT_EQ(there.Digest(), here.Digest());
  EXPECT_EQ(there.HostCopy().Digest(), here.Digest());
}

}  // namespace
}  // namespace isoloss::device::memory_test
