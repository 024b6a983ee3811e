#include "isoloss/compare/error_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace isoloss::compare {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Tensors of two elements: {1, 0} in A and {1, error} in B, so that
/// ||a - b|| / ||a|| is `error` to the bit where that is a float.
class Dumps {
 public:
  void Add(const std::string& module, const std::string& kind, float error) {
    runlog::DumpedTensor tensor{.name = module + "_" + kind,
                                .module = module,
                                .kind = kind,
                                .order = order_++,
                                .rows = 1,
                                .cols = 2,
                                .values = {1, 0}};
    a.tensors.push_back(tensor);
    tensor.values[1] = error;
    b.tensors.push_back(tensor);
  }

  OperationError Of(const std::string& result) const {
    for (const OperationError& operation :
         MeasureErrorGrowth(a, b).operations) {
      if (operation.result == result) return operation;
    }
    ADD_FAILURE() << result << " is no operation";
    return {};
  }

  runlog::TensorDump a;
  runlog::TensorDump b;

 private:
  int64_t order_ = 0;
};

/// One GEMM, forward and backward.
Dumps Gemm() {
  Dumps dumps;
  dumps.Add("m", "weight", 0.5F);
  dumps.Add("m", "activation", 0.375F);
  dumps.Add("m", "output", 0.625F);
  dumps.Add("m", "gradient", 0.25F);
  dumps.Add("m", "dgrad", 1.0F);
  dumps.Add("m", "wgrad", 0.375F);
  return dumps;
}

TEST(ErrorGrowth, HoldsEachProductOfAGemmAgainstItsOperands) {
  const Dumps dumps = Gemm();

  const OperationError output = dumps.Of("m_output");
  EXPECT_THAT(output.inputs, ElementsAre("m_activation", "m_weight"));
  EXPECT_EQ(output.input_error, 0.5);
  EXPECT_EQ(output.growth, 1.25);
  EXPECT_EQ(output.added, 0.375);  // 5/8, 4/8, 3/8: a right triangle
  EXPECT_THAT(dumps.Of("m_dgrad").inputs,
              ElementsAre("m_gradient", "m_weight"));
  EXPECT_EQ(dumps.Of("m_dgrad").growth, 2);
  EXPECT_THAT(dumps.Of("m_wgrad").inputs,
              ElementsAre("m_gradient", "m_activation"));
  EXPECT_EQ(dumps.Of("m_wgrad").growth, 1);
  EXPECT_EQ(dumps.Of("m_wgrad").added, 0);
}

TEST(ErrorGrowth, SortsByWhatIsAddedNotByTheErrorThatIsPassedOn) {
  Dumps dumps;
  dumps.Add("x", "output", 0.0F);
  dumps.Add("p", "activation", 0.0F);
  dumps.Add("p", "output", 0.5F);  // adds
  dumps.Add("q", "activation", 0.5F);
  dumps.Add("q", "output", 0.5F);  // passes on

  const ErrorGrowth growth = MeasureErrorGrowth(dumps.a, dumps.b);

  EXPECT_EQ(growth.operations[0].result, "p_output");
  EXPECT_EQ(growth.operations[0].added, 0.5);
  EXPECT_EQ(growth.operations[1].added, 0);
  ASSERT_TRUE(growth.first_source.has_value());
  EXPECT_EQ(growth.first_source->result, "p_output");
  EXPECT_TRUE(std::isinf(growth.first_source->growth));
}

TEST(ErrorGrowth, OtherModulesAreHeldAgainstTheirEnclosingModule) {
  Dumps dumps;
  dumps.Add("embedding", "output", 0.25F);
  dumps.Add("l.0.norm", "weight", 0.5F);
  dumps.Add("l.0.norm", "output", 0.25F);
  dumps.Add("l.0.wq", "output", 0.375F);
  dumps.Add("l.0.core", "output", 0.5F);
  dumps.Add("l.1.norm", "output", 0.5F);
  dumps.Add("l.1.norm", "gradient", 0.125F);
  dumps.Add("l.1.core", "gradient", 0.25F);

  EXPECT_THAT(dumps.Of("embedding_output").inputs, IsEmpty());
  EXPECT_THAT(dumps.Of("l.0.norm_output").inputs,
              ElementsAre("embedding_output", "l.0.norm_weight"));
  EXPECT_THAT(dumps.Of("l.0.core_output").inputs,
              ElementsAre("l.0.norm_output", "l.0.wq_output"));
  EXPECT_EQ(dumps.Of("l.0.core_output").input_error, 0.375);
  EXPECT_THAT(dumps.Of("l.1.norm_output").inputs,
              ElementsAre("l.0.core_output"));
  EXPECT_THAT(dumps.Of("l.1.norm_gradient").inputs,
              ElementsAre("l.1.norm_output"));
  EXPECT_THAT(dumps.Of("l.1.core_gradient").inputs,
              ElementsAre("l.1.norm_gradient"));
}

TEST(ErrorGrowth, NanComesFirstAndShapesThatDifferAreLeftOut) {
  Dumps dumps = Gemm();
  dumps.b.tensors[5].values[0] = std::nanf("");
  dumps.b.tensors[2].rows = 2;
  dumps.b.tensors[2].cols = 1;

  const ErrorGrowth growth = MeasureErrorGrowth(dumps.a, dumps.b);

  EXPECT_EQ(growth.operations[0].result, "m_wgrad");
  EXPECT_TRUE(std::isnan(growth.operations[0].added));
  for (const OperationError& operation : growth.operations) {
    EXPECT_NE(operation.result, "m_output");
  }
}

TEST(ErrorGrowth, EqualDumpsAddNothing) {
  const Dumps dumps = Gemm();

  const ErrorGrowth growth = MeasureErrorGrowth(dumps.a, dumps.a);

  EXPECT_FALSE(growth.first_source.has_value());
  for (const OperationError& operation : growth.operations) {
    EXPECT_EQ(operation.added, 0);
    EXPECT_EQ(operation.growth, 1);
  }
}

}  // namespace
}  // namespace isoloss::compare
