#include "isoloss/treatments/student.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/rng.h"
#include "isoloss/treatments/student_layer.h"

namespace isoloss::treatments::student_test {
namespace {

const std::function<bool()> kOn = [] { return true; };

void Fill(uint64_t seed, float reach, Matrix<float>& values) {
  const CounterRng rng(seed, StreamId("test"));
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = reach * static_cast<float>(2 * rng.Uniform(i) - 1);
  }
}

/// A layer with its input, and the sum of what it gives times fixed weights.
class LayerCase {
 public:
  LayerCase() : layer(8, 16), input(5, 8), weights_(5, 8) {
    Fill(5, 0.5F, layer.w1);
    Fill(2, 0.5F, layer.w2);
    Fill(3, 1, input);
    Fill(4, 1, weights_);
    for (size_t i = 0; i < 8; ++i) {
      layer.gain(0, i) = 0.5F + 0.1F * static_cast<float>(i);
    }
  }

  double Value() {
    Matrix<float> a;
    a.CopyFrom(input);
    layer.Forward(nullptr, nullptr, a);
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      sum += double{a.data()[i]} * double{weights_.data()[i]};
    }
    return sum;
  }

  /// The input's gradient.
  Matrix<float> Backward() {
    Value();
    Matrix<float> gradient;
    gradient.CopyFrom(weights_);
    layer.Backward(nullptr, gradient);
    return gradient;
  }

  StudentLayer layer;
  Matrix<float> input;

 private:
  Matrix<float> weights_;
};

TEST(StudentLayer, HasTheGradientsOfItsOutput) {
  LayerCase example;
  const Matrix<float> input_gradient = example.Backward();
  // Central differences of 2^-9 of values near 1. Sums of some 40 FP32 products
  // are off by up to 40 * 2^-24, hence differences by 6e-4; curvature adds
  // about 2^-18. A ReLU whose argument changes its sign within the difference
  // would show, but none of these does.
  constexpr float kStep = 0x1p-9F;
  constexpr double kTolerance = 2e-3;
  StudentLayer& layer = example.layer;
  size_t checked = 0;
  for (const auto& [values, gradient] :
       {std::pair<Matrix<float>*, const Matrix<float>*>(&layer.w1, &layer.dw1),
        {&layer.w2, &layer.dw2},
        {&layer.gain, &layer.dgain},
        {&example.input, &input_gradient}}) {
    for (size_t i = 0; i < values->size(); i += 3) {
      const float before = values->data()[i];
      values->data()[i] = before + kStep;
      const double above = example.Value();
      values->data()[i] = before - kStep;
      const double below = example.Value();
      values->data()[i] = before;

      const double slope = (above - below) / (2 * double{kStep});
      EXPECT_NEAR(gradient->data()[i], slope,
                  kTolerance * (1 + std::fabs(slope)))
          << "element " << i << " of " << values->rows() << " x "
          << values->cols();
      ++checked;
    }
  }
  EXPECT_GT(checked, 90u);
}

estimators::Student Small() {
  estimators::Student student;
  student.width = 32;
  student.hidden = 64;
  student.depth = 2;
  student.batch = 64;
  student.steps = 100;
  student.lr = 0.01;
  return student;
}

TEST(Student, LearnsWhatItsTeacherKnows) {
  for (const std::string_view arm : StudentArms()) {
    const estimators::RunCurve run = TrainStudent(Small(), arm, 1, kOn);

    ASSERT_EQ(run.losses.size(), 10u) << arm;
    EXPECT_EQ(run.losses.back().first, 100);
    EXPECT_LT(run.losses.back().second, run.losses.front().second / 2) << arm;
    EXPECT_FALSE(run.diverged) << arm;
  }
}

TEST(Student, DependsOnItsArmAndSeedAlone) {
  const auto once = TrainStudent(Small(), "exempt", 1, kOn);

  EXPECT_EQ(once.losses, TrainStudent(Small(), "exempt", 1, kOn).losses);
  EXPECT_NE(once.losses, TrainStudent(Small(), "exempt", 2, kOn).losses);
  EXPECT_NE(once.losses, TrainStudent(Small(), "fp32", 1, kOn).losses);
  // Gains of 1 are exact in E4M3: those that were trained are not.
  EXPECT_NE(once.losses, TrainStudent(Small(), "quantised", 1, kOn).losses);
}

TEST(Student, DivergesAtATooLargeRate) {
  estimators::Student student = Small();
  student.lr = 10;

  EXPECT_TRUE(TrainStudent(student, "fp32", 1, kOn).diverged);
  EXPECT_THROW(TrainStudent(student, "other", 1, kOn), Error);
}

TEST(Student, EndsAtAHeldOutLossThatIsNotFinite) {
  estimators::Student student = Small();
  student.steps = 10;
  student.lr = 1e30;  // The first step's own loss is finite.
  int steps = 0;

  const estimators::RunCurve run =
      TrainStudent(student, "fp32", 1, [&steps] { return ++steps < 2; });

  EXPECT_EQ(steps, 1);
  EXPECT_TRUE(run.diverged);
  EXPECT_TRUE(run.losses.empty());
}

}  // namespace
}  // namespace isoloss::treatments::student_test
