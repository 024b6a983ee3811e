#include "isoloss/model/norm.h"

#include "isoloss/kernels/rowwise.h"
#include "isoloss/model/layer_context.h"

namespace isoloss::model {

RmsNorm::RmsNorm(LayerContext& context, std::string_view parameter)
    : context_(context), parameter_(context.weights.IndexOf(parameter)) {}

void RmsNorm::Forward(MatrixView<const float> x, MatrixView<float> y) {
  rstd_.resize(x.rows());
  kernels::RmsNormForward(x, {context_.Weight(parameter_).data(), x.cols()},
                          static_cast<float>(context_.config.norm_eps),
                          context_.rounding, y, rstd_, context_.team);
}

void RmsNorm::Backward(MatrixView<const float> x, MatrixView<const float> dy,
                       MatrixView<float> dx) {
  kernels::RmsNormBackward(x, {context_.Weight(parameter_).data(), x.cols()},
                           rstd_, dy, context_.rounding, dx,
                           {context_.Gradient(parameter_).data(), x.cols()},
                           context_.team);
}

void RmsNorm::BackwardAdd(MatrixView<const float> x, MatrixView<const float> dy,
                          MatrixView<float> dx) {
  kernels::RmsNormBackwardAdd(x, {context_.Weight(parameter_).data(), x.cols()},
                              rstd_, dy, context_.rounding, dx,
                              {context_.Gradient(parameter_).data(), x.cols()},
                              context_.team);
}

}  // namespace isoloss::model
