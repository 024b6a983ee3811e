#include "isoloss/model/norm.h"

#include "isoloss/kernels/prepare.h"
#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {

RmsNorm::RmsNorm(LayerContext& context, std::string_view parameter)
    : context_(context),
      name_(parameter.substr(0, parameter.rfind('.'))),
      parameter_(context.graph.ParameterIndex(parameter)),
      quantizes_gain_(context.recipe.recipe().norm_gains.has_value()) {
  if (!quantizes_gain_) return;
  // These are three products with a diagonal matrix: y, dx and the weight's
  // gradient.
  context.gemms_per_step += 3;
  context.quantized_gemms_per_step += 2;
}

/// The forward pass calls this; the backward pass reads the same values.
void RmsNorm::ReadGain() {
  const MatrixView<const float> gain = context_.Weight(parameter_);
  gain_.ResizeUninitialized(1, gain.cols());
  kernels::Cast(gain, context_.rounding, gain_.view(), context_.executor);
  if (!quantizes_gain_) return;
  const formats::Quantization& quantization =
      *context_.recipe.recipe().norm_gains;
  const kernels::OperandState state =
      StateOf(context_.key, name_, precision::GemmRole::kFprop,
              OperandSide::kRight, /*group=*/0, /*first_tensor=*/0);
  const kernels::TensorToQuantize tensor = {gain_.view(), &quantization,
                                            state.Of(0)};
  kernels::QuantizeTensors({&tensor, 1}, context_.executor);
  context_.gemms.CountOthers(1, 1);
}

void RmsNorm::Forward(MatrixView<const float> x, MatrixView<float> y) {
  ReadGain();
  rstd_.ResizeUninitialized(1, x.rows());
  kernels::RmsNormForward(
      x, Gain(), static_cast<float>(context_.config.norm_eps),
      context_.rounding, y, {rstd_.data(), rstd_.cols()}, context_.executor);
}

void RmsNorm::Backward(MatrixView<const float> x, MatrixView<const float> dy,
                       MatrixView<float> dx, bool add) {
  if (quantizes_gain_) context_.gemms.CountOthers(1, 2);
  kernels::RmsNormBackward({x,
                            Gain(),
                            {rstd_.data(), rstd_.cols()},
                            dy,
                            context_.rounding,
                            add,
                            dx,
                            {context_.Gradient(parameter_).data(), x.cols()}},
                           context_.executor);
}

}  // namespace isoloss::model
