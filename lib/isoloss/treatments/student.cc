#include "isoloss/treatments/student.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "isoloss/base/error.h"
#include "isoloss/base/executor.h"
#include "isoloss/base/matrix.h"
#include "isoloss/base/rng.h"
#include "isoloss/formats/quantization.h"
#include "isoloss/kernels/normal.h"
#include "isoloss/optim/adamw.h"
#include "isoloss/stats/divergence.h"
#include "isoloss/treatments/student_layer.h"

namespace isoloss::treatments {
namespace {

constexpr std::array<std::string_view, 3> kStudentArms = {"fp32", "exempt",
                                                          "quantised"};
constexpr double kTeacherGain = 0.5;

void FillNormal(uint64_t seed, const std::string& stream, uint64_t first,
                double deviation, Matrix<float>& values) {
  const CounterRng rng(seed, StreamId("student/" + stream));
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = static_cast<float>(
        deviation * kernels::StandardNormal(rng.Block(first + i)));
  }
}

void FillUniform(uint64_t seed, const std::string& stream,
                 Matrix<float>& values) {
  const CounterRng rng(seed, StreamId("student/" + stream));
  const double reach = 1 / std::sqrt(static_cast<double>(values.cols()));
  for (size_t i = 0; i < values.size(); ++i) {
    values.data()[i] = static_cast<float>(reach * (2 * rng.Uniform(i) - 1));
  }
}

class StudentTraining {
 public:
  StudentTraining(const estimators::Student& student, std::string_view arm,
                  uint64_t seed)
      : student_(student),
        seed_(seed),
        format_(formats::QuantizationByName(student.format)),
        products_(arm == kStudentArms[0] ? nullptr : &format_),
        gains_(arm == kStudentArms[2] ? &format_ : nullptr) {
    const double deviation =
        kTeacherGain *
        std::sqrt(2 / static_cast<double>(student.width + student.hidden));
    for (size_t k = 0; k < student.depth; ++k) {
      for (auto* layers : {&layers_, &teacher_}) {
        layers->emplace_back(student.width, student.hidden);
      }
      FillUniform(seed, fmt::format("w1.{}", k), layers_[k].w1);
      FillUniform(seed, fmt::format("w2.{}", k), layers_[k].w2);
      FillNormal(seed, fmt::format("teacher.w1.{}", k), 0, deviation,
                 teacher_[k].w1);
      FillNormal(seed, fmt::format("teacher.w2.{}", k), 0, deviation,
                 teacher_[k].w2);
    }
  }

  /// Returns the loss of the batch that `stream` and `number` name. Leaves its
  /// gradient with respect to the outputs in `outputs`.
  double Forward(const std::string& stream, uint64_t number, double noise,
                 Matrix<float>& outputs) {
    inputs_.ResizeUninitialized(student_.batch, student_.width);
    const uint64_t first = number * inputs_.size();
    FillNormal(seed_, stream, first, 1, inputs_);
    targets_.CopyFrom(inputs_);
    for (StudentLayer& layer : teacher_) {
      layer.ForwardBare(targets_);
    }
    noise_.ResizeUninitialized(student_.batch, student_.width);
    FillNormal(seed_, stream + ".noise", first, noise, noise_);
    outputs.CopyFrom(inputs_);
    for (StudentLayer& layer : layers_) {
      layer.Forward(products_, gains_, outputs);
    }
    double sum = 0;
    const auto count = static_cast<double>(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      const double error = static_cast<double>(outputs.data()[i]) -
                           static_cast<double>(targets_.data()[i]) -
                           static_cast<double>(noise_.data()[i]);
      sum += error * error;
      outputs.data()[i] = static_cast<float>(2 * error / count);
    }
    return sum / count;
  }

  void Backward(Matrix<float>& gradient) {
    for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
      layer->Backward(products_, gradient);
    }
  }

  std::vector<optim::Tensor> Tensors() {
    std::vector<optim::Tensor> tensors;
    for (StudentLayer& layer : layers_) {
      for (const optim::Tensor& tensor : layer.Tensors()) {
        tensors.push_back(tensor);
      }
    }
    return tensors;
  }

 private:
  const estimators::Student& student_;
  uint64_t seed_;
  formats::Quantization format_;
  const formats::Quantization* products_;
  const formats::Quantization* gains_;
  std::vector<StudentLayer> layers_, teacher_;
  Matrix<float> inputs_, targets_, noise_;
};

}  // namespace

std::span<const std::string_view> StudentArms() { return kStudentArms; }

estimators::RunCurve TrainStudent(const estimators::Student& student,
                                  std::string_view arm, uint64_t seed,
                                  const std::function<bool()>& go_on) {
  if (std::ranges::count(kStudentArms, arm) == 0) {
    ThrowError(ErrorKind::kConfig,
               "claim: a student has no arm {}, but {}. Correct the name.", arm,
               fmt::join(kStudentArms, ", "));
  }
  StudentTraining training(student, arm, seed);
  Executor alone(1);
  optim::AdamW adam({.weight_decay = 0}, training.Tensors());
  estimators::RunCurve curve{.seed = static_cast<int64_t>(seed)};
  std::vector<double> losses;
  Matrix<float> gradient;
  for (int64_t step = 1; step <= student.steps && go_on(); ++step) {
    losses.push_back(training.Forward("inputs", static_cast<uint64_t>(step),
                                      student.label_noise, gradient));
    if (!std::isfinite(losses.back())) break;
    training.Backward(gradient);
    adam.Step(student.lr, 1, alone);
    if (step % (student.steps / estimators::kStudentEvaluations) != 0) continue;
    const double held_out = training.Forward("held_out", 0, 0, gradient);
    if (!std::isfinite(held_out)) {
      curve.diverged = true;
      break;
    }
    curve.losses.emplace_back(step, held_out);
  }
  curve.diverged =
      curve.diverged ||
      stats::DivergedAt(losses, student.steps, /*complete=*/true).has_value();
  return curve;
}

}  // namespace isoloss::treatments
