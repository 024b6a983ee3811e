// An executor with a form of its own for a kernel gets the kernel's arguments.
#include <gtest/gtest.h>

#include <vector>

#include "isoloss/base/executor.h"
#include "isoloss/kernels/gemm.h"
#include "isoloss/kernels/rowwise.h"

namespace isoloss::kernels::executor_forms_test {
namespace {

/// Instead of a sum it gives a difference, and no products at all.
class Subtracting final : public Executor {
 public:
  Subtracting() : Executor(2) {}
  ErasedKernel FormOf(ErasedKernel kernel) const override {
    if (kernel == reinterpret_cast<ErasedKernel>(&Add)) {
      return reinterpret_cast<ErasedKernel>(&Subtract);
    }
    if (kernel == reinterpret_cast<ErasedKernel>(&GemmBatch)) {
      return reinterpret_cast<ErasedKernel>(&CountProducts);
    }
    return nullptr;
  }

  size_t products = 0;

 private:
  static void Subtract(MatrixView<const float> x, MatrixView<const float> y,
                       Rounding rounding, MatrixView<float> out,
                       Executor& executor) {
    EXPECT_EQ(executor.size(), 2);
    for (size_t i = 0; i < x.cols(); ++i) {
      out(0, i) = Rounded(x(0, i) - y(0, i), rounding);
    }
  }
  static void CountProducts(std::span<const GemmProblem> problems,
                            Executor& executor) {
    static_cast<Subtracting&>(executor).products += problems.size();
  }
};

TEST(ExecutorForms, RunInPlaceOfTheKernelsLoops) {
  const std::vector<float> x = {5, 7};
  const std::vector<float> y = {1, 2};
  std::vector<float> out(2);
  Subtracting executor;

  Add({x.data(), 1, 2}, {y.data(), 1, 2}, Rounding::kFp32, {out.data(), 1, 2},
      executor);
  EXPECT_EQ(out, (std::vector<float>{4, 5}));

  const GemmProblem problem = {.a = {MatrixView<const float>(x.data(), 1, 2)},
                               .b = {MatrixView<const float>(y.data(), 1, 2)},
                               .c = {out.data(), 1, 1}};
  GemmBatch({&problem, 1}, executor);
  EXPECT_EQ(executor.products, 1u);
  EXPECT_EQ(out[0], 4);

  // What has no form runs on the threads.
  Cast({x.data(), 1, 2}, Rounding::kFp32, {out.data(), 1, 2}, executor);
  EXPECT_EQ(out, x);
}

}  // namespace
}  // namespace isoloss::kernels::executor_forms_test
