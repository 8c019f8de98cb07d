package simruntime

import (
	"context"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageService has every image that anyone asks for.
type imageService struct {
	cri.UnimplementedImageServiceServer
	rt *Runtime
}

// imageBytes is the size of every image.
const imageBytes = 42 << 20

func image(name string) *cri.Image {
	return &cri.Image{Id: imageRef(name), RepoTags: []string{name}, Size: imageBytes}
}

// ListImages answers the images that containers use.
func (s *imageService) ListImages(_ context.Context, req *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	s.rt.read()
	defer s.rt.mu.RUnlock()
	want := req.GetFilter().GetImage().GetImage()
	seen := map[string]bool{}
	resp := &cri.ListImagesResponse{}
	for _, c := range s.rt.state.containerOrder {
		name := c.image.GetImage()
		if !seen[name] && (want == "" || want == name) {
			seen[name] = true
			resp.Images = append(resp.Images, image(name))
		}
	}
	return resp, nil
}

func (s *imageService) ImageStatus(_ context.Context, req *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	return &cri.ImageStatusResponse{Image: image(req.GetImage().GetImage())}, nil
}

func (s *imageService) PullImage(_ context.Context, req *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	return &cri.PullImageResponse{ImageRef: imageRef(req.GetImage().GetImage())}, nil
}
