// A batch norm with running statistics, [cols] each.
struct Norm {
    const float *gamma, *beta, *mean, *variance;
};
